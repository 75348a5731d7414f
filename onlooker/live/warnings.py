"""Warnings of an Observer: torn shards, jumps that would not be detected, and R̂ from before a jump."""

from collections.abc import Sequence

from onlooker.core.forgetting import weight_left
from onlooker.core.messages import Message
from onlooker.data.log.reader import torn_shards
from onlooker.fit.jumps.detector import OtherDetector
from onlooker.fit.jumps.statistic import Jump
from onlooker.fit.jumps.watch import JumpWatch
from onlooker.live.settings import SETTINGS

__all__ = ["about_jumps", "about_log"]


def about_log(torn: Sequence[str]) -> list[Message]:
    """A warning if shards of the log could not be read."""
    return [torn_shards(len(torn))] if torn else []


def about_jumps(
    watch: JumpWatch | OtherDetector, adaptive: bool, taken: int, rate: float | None, count: int
) -> list[Message]:
    """With adaptive forgetting, a warning if a jump would be missed; otherwise, if R̂ is a mixture because of one.

    Parameters
    ----------
    watch
        The detector.
    adaptive
        Whether forgetting is adaptive.
    taken
        Number of observations so far.
    rate
        Forgetting rate of the observations that R̂ is based on.
    count
        Number of observations that R̂ is based on.
    """
    if adaptive:
        return [] if watch.watching else [_jumps_unseen()]
    return _before_jump(watch.jumps, taken, rate, count)


def _jumps_unseen() -> Message:
    """The warning that a jump would not be detected now."""
    text = (
        "a jump of the reward would not be detected now: learners have moved to where gradients cannot be predicted, "
        "or their rows are too similar. Watch more learners at a time, or for longer."
    )
    return Message("jumps-unseen", text)


def _before_jump(jumps: Sequence[Jump], taken: int, rate: float | None, count: int) -> list[Message]:
    """A warning if more than a small share of the weight in R̂ is from before the last jump."""
    if not jumps:
        return []
    ago = taken - jumps[-1].at
    # Σ(1 − γ)^k over the observations since the jump, and over all.
    since, everything = (_total_weight(rate, rows) for rows in (min(ago, count), count))
    before = 1 - since / everything
    if before < SETTINGS.worth_warning:
        return []
    text = (
        f"the reward jumped {ago} observations ago, and {100 * before:.0f} % of the weight in R̂ is from before: R̂ is "
        "a mixture of rewards. Use forgetting='adaptive'."
    )
    return [Message("reward-jumped", text, {"ago": ago, "before": before})]


def _total_weight(rate: float | None, count: int) -> float:
    """Σ_{k < count} (1 − γ)^k."""
    return float(count) if rate is None else (1 - float(weight_left(rate, count))) / rate
