"""R at every row of a landscape: along each run in all dimensions, from its start, or at the level of its losses."""

from dataclasses import replace

import numpy as np

from onlooker.data.along import agents_of, along
from onlooker.data.observations import Observations

__all__ = ["along_all", "at_start"]


def along_all(seen: Observations, window: int) -> tuple[np.ndarray, bool]:
    """R along every run (n,), and whether all are at the level of their losses, averaged over a window of rows."""
    reward, levelled = np.zeros(len(seen)), "loss" in seen.marks
    names = agents_of(seen)
    numbers = [None] if seen.agents is None else np.unique(seen.agents)
    plain = replace(seen, marks={name: column for name, column in seen.marks.items() if name != "loss"})
    runs = [np.arange(len(seen)) if number is None else np.flatnonzero(seen.agents == number) for number in numbers]
    levelled = levelled and min(map(len, runs)) >= 4 * window and np.isfinite(seen.marks["loss"]).all()
    for name, rows in zip(names, runs, strict=True):
        order = rows if seen.times is None else rows[np.argsort(seen.times[rows], kind="stable")]
        reward[order] = along(plain, name).reward
        if levelled:
            apart = -seen.marks["loss"][order] - reward[order]
            around = np.ones(window)
            counts = np.convolve(np.ones(len(apart)), around, "same")
            reward[order] += np.convolve(apart, around, "same") / counts
    return reward, levelled


def at_start(seen: Observations, values: np.ndarray) -> np.ndarray:
    """For each row, the value at the start of its run: there the fit's own level is taken."""
    if seen.agents is None:
        return np.full(len(values), values.mean())
    times = np.arange(len(values)) if seen.times is None else seen.times
    order = np.lexsort((times, seen.agents))
    _, first, which = np.unique(seen.agents[order], return_index=True, return_inverse=True)
    if len(first) == 1:
        return np.full(len(values), values.mean())
    found = np.empty(len(values))
    found[order] = values[order][first][which]
    return found
