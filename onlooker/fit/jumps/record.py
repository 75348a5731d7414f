"""Jumps in a record that is complete: suspected by the watch, confirmed by the fit to all rows, and put into words."""

from onlooker.core.blas import one_thread
from onlooker.core.messages import Message
from onlooker.data.observations import Observations
from onlooker.fit.jumps.expected import Field
from onlooker.fit.jumps.statistic import Jump, JumpTest
from onlooker.fit.jumps.watch import FALSE_ALARMS, JumpWatch

__all__ = ["about_jumps", "confirmed", "given_row", "jumps_in"]

# The chance that a reward that never jumped is said to have, at some row of the record.
FALSE_ALARM = 0.01
# Rows before and after a jump that must show it once more, and how few before it can tell.
LOOKED_AT = 1 << 13
FEWEST_BEFORE = 100


def jumps_in(seen: Observations) -> list[Jump]:
    """Where gradients stop being what the rows before them let expect.

    Parameters
    ----------
    seen
        Cleaned observations, as `onlooker.data.quality.inspect` returns them; jumps count these.
    """
    watch = JumpWatch(seen.dim, min(FALSE_ALARMS, FALSE_ALARM / len(seen)))
    watch.update(seen.points, seen.gradients)
    return list(watch.jumps)


def confirmed(jump: Jump, seen: Observations, fit: Field) -> bool:
    """Whether gradients change there by the fit to the whole record, too.

    The watch's small fit can mistake new territory for a change. The full fit covers both regions, so its residuals
    change there only if the reward did.
    """
    rows = slice(max(0, jump.at - LOOKED_AT), jump.at), slice(jump.at, jump.at + LOOKED_AT)
    before, after = (
        (points, seen.gradients[part] - fit.gradient(points), fit.explored(points))
        for part in rows
        for points in [seen.points[part].astype(float)]
    )
    known = before[2]
    if known.sum() < FEWEST_BEFORE:
        return True
    gradients = seen.gradients[rows[0]][known]
    with one_thread():
        test = JumpTest.against(before[0][known], before[1][known], gradients, FALSE_ALARM / LOOKED_AT)
        return test.update(*after) is not None


def given_row(jump: Jump, seen: Observations) -> int:
    """The first row after a jump, counted in the order given: before runaways and duplicates were left out."""
    return jump.at if seen.rows is None else int(seen.rows[min(jump.at, len(seen) - 1)])


def about_jumps(jumps: list[Jump], seen: Observations, given: int) -> list[Message]:
    """What to say of the jumps in cleaned observations, of which so many were ``given``."""
    if not jumps:
        return []
    times = "once" if len(jumps) == 1 else f"{len(jumps)} times"
    last = given_row(jumps[-1], seen)
    text = (
        f"the reward jumped {times}, last about row {last} of {given} in the order given: R̂ is a "
        "mixture of rewards. Reconstruct the rows since then, or use Observer(forgetting='adaptive')."
    )
    return [Message("reward-jumped", text, {"jumps": len(jumps), "last": last, "rows": given})]
