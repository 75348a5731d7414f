"""Whether the residuals of a full fit change at a jump that the watch suspects.

The watch's small fit can mistake new territory, or a steep place, for a change. A fit to all rows covers these places,
so its residuals change only if the reward does. One agent at a place that the fit knows badly can change them, too; if
there are many, a change must therefore show without the agent that it shows in most.
"""

import numpy as np

from onlooker.core.blas import one_thread
from onlooker.fit.jumps.expected import Field, residuals_of
from onlooker.fit.jumps.settings import SETTINGS
from onlooker.fit.jumps.statistic import JumpTest

__all__ = ["residuals_change"]


def residuals_change(
    points: np.ndarray,
    gradients: np.ndarray,
    at: int,
    fit: Field,
    false_alarms: float,
    unseen: np.ndarray | None = None,
    agents: np.ndarray | None = None,
) -> bool:
    """Whether they do at row ``at`` of points and gradients (n, dim); True if too few rows before it are explored.

    Parameters
    ----------
    points
        Points (n, dim).
    gradients
        Gradients (n, dim).
    at
        Index of the first row after the jump.
    fit
        A fit to these rows and others, or at least to those before the jump.
    false_alarms
        False-alarm probability per row.
    unseen
        Which rows (n,) the fit was not fitted to: only these tell what its residuals are like before the jump; default:
        all.
    agents
        The agent (n,) of each row, if they are known.
    """
    most = SETTINGS.confirmed_by
    rows = slice(max(0, at - most), at), slice(at, at + most)
    before, after = (
        (places, residuals_of(fit, places, gradients[part]), fit.explored(places))
        for part in rows
        for places in [points[part].astype(float)]
    )
    known = before[2] if unseen is None else before[2] & unseen[rows[0]]
    if known.sum() < SETTINGS.confirmed_from:
        return True
    left, places, latest, explored = before[1][known], *after
    if agents is not None and len(np.unique(agents[rows[0]])) >= SETTINGS.many_agents:
        explored = explored & (agents[rows[1]] != loudest(latest / left.std(axis=0), agents[rows[1]], explored))
    with one_thread():
        test = JumpTest.against(before[0][known], left, gradients[rows[0]][known], false_alarms, left)
        return test.update(places, latest, explored) is not None


def loudest(residuals: np.ndarray, agents: np.ndarray, explored: np.ndarray) -> int:
    """The agent whose explored residuals (n, dim) have the largest sum."""
    names, owner = np.unique(agents, return_inverse=True)
    sums = np.zeros((len(names), residuals.shape[1]))
    np.add.at(sums, owner[explored], residuals[explored])
    return int(names[np.argmax((sums**2).sum(axis=1))])
