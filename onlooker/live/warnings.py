"""What an Observer has to say of torn shards, and of jumps that would not be noticed or that R̂ still remembers."""

from collections.abc import Sequence

from onlooker.core.forgetting import weight_left
from onlooker.core.messages import Message
from onlooker.data.log.reader import torn_shards
from onlooker.fit.jumps.statistic import Jump

__all__ = ["about_log", "before_jump", "jumps_unseen"]

# The weight left of what came before a jump that is worth saying.
WORTH_SAYING = 0.05


def about_log(torn: Sequence[str]) -> list[Message]:
    return [torn_shards(len(torn))] if torn else []


def jumps_unseen() -> Message:
    text = (
        "jumps of the reward would not be noticed now: learners have moved to where no gradient can be predicted, or "
        "their rows are too much alike. Watch more learners at a time, or for longer."
    )
    return Message("jumps-unseen", text)


def before_jump(jumps: Sequence[Jump], taken: int, rate: float | None, count: int) -> list[Message]:
    """How much of what R̂ is made from came before the last jump, if that is worth saying.

    Parameters
    ----------
    jumps
        All of them.
    taken
        The number of observations so far.
    rate
        The forgetting rate of what R̂ is made from.
    count
        The number of observations that is.
    """
    if not jumps:
        return []
    ago = taken - jumps[-1].at
    # Σ(1 − γ)^k over what came since, and over all that counts.
    since, everything = (_total_weight(rate, rows) for rows in (min(ago, count), count))
    before = 1 - since / everything
    if before < WORTH_SAYING:
        return []
    text = (
        f"the reward jumped {ago} observations ago, and {100 * before:.0f} % of what R̂ is made from came before: it "
        "is a mixture of rewards. Use forgetting='adaptive'."
    )
    return [Message("reward-jumped", text, {"ago": ago, "before": before})]


def _total_weight(rate: float | None, count: int) -> float:
    return float(count) if rate is None else (1 - float(weight_left(rate, count))) / rate
