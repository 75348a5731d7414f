"""Jumps in a complete record: the watch suspects them, the fit to all rows confirms them, a warning reports them."""

from onlooker.core.messages import Message
from onlooker.data.observations import Observations
from onlooker.fit.jumps.expected import Field
from onlooker.fit.jumps.judged import residuals_change
from onlooker.fit.jumps.settings import SETTINGS
from onlooker.fit.jumps.statistic import Jump
from onlooker.fit.jumps.watch import JumpWatch

__all__ = ["about_jumps", "confirmed", "given_row", "jumps_in"]


def jumps_in(seen: Observations) -> list[Jump]:
    """Rows at which gradients stop matching the prediction from earlier rows.

    Parameters
    ----------
    seen
        Cleaned observations, as `onlooker.data.quality.inspect` returns them; a jump's row is counted among these.
    """
    watch = JumpWatch(seen.dim, min(SETTINGS.false_alarms, SETTINGS.record_false_alarm / len(seen)))
    watch.update(seen.points, seen.gradients)
    return list(watch.jumps)


def confirmed(jump: Jump, seen: Observations, fit: Field) -> bool:
    """Whether the residuals of the fit to the whole record change at a jump, too."""
    chance = SETTINGS.record_false_alarm / SETTINGS.confirmed_by
    nearby = getattr(fit, "nearby", None)
    field = fit if nearby is None else nearby()
    return residuals_change(seen.points, seen.gradients, jump.at, field, chance, agents=seen.agents)


def given_row(jump: Jump, seen: Observations) -> int:
    """Index of the first row after a jump among the rows given, before runaway and duplicate rows were removed."""
    return jump.at if seen.rows is None else int(seen.rows[min(jump.at, len(seen) - 1)])


def about_jumps(jumps: list[Jump], seen: Observations, given: int) -> list[Message]:
    """Warnings about jumps; ``given`` is the number of rows before cleaning."""
    if not jumps:
        return []
    times = "once" if len(jumps) == 1 else f"{len(jumps)} times"
    last = given_row(jumps[-1], seen)
    text = (
        f"the reward jumped {times}, last about row {last} of {given} in the order given: R̂ is a "
        "mixture of rewards. Reconstruct the rows since then, or use Observer(forgetting='adaptive')."
    )
    return [Message("reward-jumped", text, {"jumps": len(jumps), "last": last, "rows": given})]
