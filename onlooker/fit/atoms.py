"""Atoms: directions that occur again and again among gradients, as those of single rows of a logistic regression.

A reward Σ f(aᵢ·x) seen one term at a time shows each aᵢ as the direction of many gradients. Found by clustering
directions, largest gradients first, until no cluster is new. An atom's gradients have hardly any noise: how sharply its
unit turns is read off them. The units' thresholds are at zero, and their weights are shrunk to a common mean.

If there are too many terms for any to occur again, some of the gradients' own directions stand for all of them.
"""

from typing import TYPE_CHECKING

import numpy as np

from onlooker.fit.ridge_frame import Frame, Rows
from onlooker.fit.ridge_units import Units, predicted

if TYPE_CHECKING:
    from onlooker.fit.ridge_candidates import Candidate

__all__ = ["FEWEST_DIMENSIONS", "cluster", "drawn_atoms", "find_atoms", "sharpness"]

# Chance makes twins in fewer dimensions.
FEWEST_DIMENSIONS = 8
# Rows looked at, and the most that are compared with each other at once.
LOOKED_AT, AT_ONCE = 60_000, 5000
# |cos| of gradients of one atom, of two different atoms, of a row that is an atom's, and
# of most of them.
SAME, OTHER, TWIN, CLOSE = 0.98, 0.95, 0.97, 0.99
# Gradients that make an atom, passes, and the most atoms.
MEMBERS, PASSES, MOST = 4, 12, 1024
# Sharpness of an atom's unit, in standard deviations of its coordinate: from almost linear to a step, in ratios of 1.4.
SHARPNESS = tuple(np.geomspace(0.06, 12, 17).tolist())
# Number of gradients whose directions stand for all, and how sharply their units turn.
DRAWN, DRAWN_SHARPNESS = 512, 2.0


def find_atoms(frame: Frame, rows: Rows, best: "Candidate", points: np.ndarray, seed: int) -> Units | None:
    """Units on atoms, or None if most gradients have no twin."""
    dim = points.shape[1]
    if dim < FEWEST_DIMENSIONS or len(rows.z) < 10 * AT_ONCE:
        return None
    gradients = _without_units(frame, rows, best)
    size = np.maximum(np.linalg.norm(gradients, axis=1), 1e-30)
    few = np.random.default_rng(seed).permutation(len(gradients))[:LOOKED_AT]
    few = few[np.argsort(-size[few])]
    atoms = cluster(gradients[few] / size[few, None])
    if atoms is None:
        return None
    owner = np.full(len(gradients), -1)
    for first in range(0, len(gradients), LOOKED_AT):
        some = slice(first, first + LOOKED_AT)
        near = np.abs(gradients[some] @ atoms.T)
        owner[some] = np.where(near.max(axis=1) > TWIN * size[some], near.argmax(axis=1), -1)
    own = np.flatnonzero(owner >= 0)
    kept, owner[own] = np.unique(owner[own], return_inverse=True)
    atoms = atoms[kept].astype(float)
    along, slope = ((part[own] * atoms[owner[own]]).sum(axis=1) for part in (points, gradients))
    return _units(frame, atoms * sharpness(owner[own], along, slope, len(atoms))[:, None])


def drawn_atoms(frame: Frame, rows: Rows, best: "Candidate", points: np.ndarray, seed: int) -> Units:
    """Units on the directions of some gradients."""
    gradients = _without_units(frame, rows, best)
    few = np.random.default_rng(seed).permutation(len(gradients))[:DRAWN]
    atoms = gradients[few] / np.maximum(np.linalg.norm(gradients[few], axis=1, keepdims=True), 1e-30)
    along = points[:: max(1, len(points) // AT_ONCE)] @ atoms.T
    return _units(frame, atoms * (DRAWN_SHARPNESS / np.maximum(along.std(axis=0), 1e-30))[:, None])


def _without_units(frame: Frame, rows: Rows, best: "Candidate") -> np.ndarray:
    """Raw gradients (n, dim) less the units on coordinates only: the quadratic would blur small rows."""
    nothing = np.zeros((rows.y.shape[1], rows.y.shape[1] + 1))
    left = rows.y - predicted(nothing, best.units, best.head.weights, rows.z)
    return left @ frame.forward.astype(np.float32)


def _units(frame: Frame, turns: np.ndarray) -> Units:
    """Units log cosh(w·x) on raw directions (k, dim), their weights shrunk to a common mean."""
    bends = np.column_stack([turns @ frame.backward, turns @ frame.centre])
    return Units(bends, np.zeros((0, turns.shape[1] + 1)), np.zeros(len(bends), int), np.ones(1, bool))


def sharpness(owner: np.ndarray, along: np.ndarray, slope: np.ndarray, count: int) -> np.ndarray:
    """κ of each atom: that of the least squares of slope = a + b tanh(κ·along) over the rows that it owns (n,)."""

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(owner, values, count)

    number = np.maximum(sums(np.ones(len(owner))), 1)
    deviation = np.sqrt(np.maximum(sums(along**2) / number, 1e-300))
    height = slope - (sums(slope) / number)[owner]
    explained = np.empty((len(SHARPNESS), count))
    for row, sharp in zip(explained, SHARPNESS, strict=True):
        turned = np.tanh(sharp * along / deviation[owner])
        turned -= (sums(turned) / number)[owner]
        row[:] = sums(turned * height) ** 2 / np.maximum(sums(turned**2), 1e-300)
    best = explained.argmax(axis=0)
    # A parabola through the best three, in logarithms.
    inner = np.clip(best, 1, len(SHARPNESS) - 2)
    low, middle, high = (explained[inner + step, np.arange(count)] for step in (-1, 0, 1))
    shift = np.clip(0.5 * (low - high) / np.minimum(low - 2 * middle + high, -1e-300), -1, 1)
    ratio = SHARPNESS[1] / SHARPNESS[0]
    return SHARPNESS[0] * ratio ** np.where(best == inner, inner + shift, best) / deviation


def cluster(directions: np.ndarray) -> np.ndarray | None:
    """Atoms (k, dim) of unit directions (n, dim), which are sorted by size; None if most have no twin."""
    few = directions[:AT_ONCE]
    near = np.abs(few @ few.T)
    np.fill_diagonal(near, 0)
    twins = near > TWIN
    # Twins by chance are seldom closer than the limit; those of one atom are all much closer.
    if twins.any(axis=1).mean() < 0.5 or (near > CLOSE).sum() < 0.5 * twins.sum():
        return None
    found = np.zeros((0, directions.shape[1]), np.float32)
    for _ in range(PASSES):
        left = np.abs(directions @ found.T).max(axis=1) < OTHER if len(found) else np.ones(len(directions), bool)
        few = directions[left][:AT_ONCE]
        near = few @ few.T
        close = np.abs(near) > SAME
        count, free, new = close.sum(axis=1), np.ones(len(few), bool), []
        for row in np.argsort(-count):
            if count[row] < MEMBERS:
                break
            if free[row]:
                free &= np.abs(near[row]) <= OTHER
                mean = (few[close[row]] * np.sign(near[row, close[row]])[:, None]).mean(axis=0)
                new.append(mean / np.linalg.norm(mean))
        if not new or len(found) + len(new) > MOST:
            break
        found = np.concatenate([found, np.asarray(new, np.float32)])
    return found if len(found) else None
