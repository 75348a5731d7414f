"""Atoms: directions that occur again and again among gradients, as those of single rows of a logistic regression.

A reward Σ f(aᵢ·x) seen one term at a time shows each aᵢ as the direction of many gradients. Found by clustering
directions, largest gradients first, until no cluster is new; an atom's norm is the 98 % quantile of its gradients'. The
units' thresholds are at zero, and their weights are shrunk to a common mean.
"""

from typing import TYPE_CHECKING

import numpy as np

from onlooker.fit.ridge_frame import Frame, Rows
from onlooker.fit.ridge_units import Units, predicted

if TYPE_CHECKING:
    from onlooker.fit.ridge_candidates import Candidate

__all__ = ["cluster", "find_atoms"]

# Chance makes twins in fewer dimensions.
FEWEST_DIMENSIONS = 8
# Rows looked at, and the most that are compared with each other at once.
LOOKED_AT, AT_ONCE = 60_000, 5000
# |cos| of gradients of one atom, of two different atoms, of a row that is an atom's, and
# of most of them.
SAME, OTHER, TWIN, CLOSE = 0.98, 0.95, 0.97, 0.99
# Gradients that make an atom, passes, and the most atoms.
MEMBERS, PASSES, MOST = 4, 12, 1024
# Largest units: the mean atom turns over this range.
SHARPNESS = (2.0, 3.0)


def find_atoms(frame: Frame, rows: Rows, best: "Candidate", points: np.ndarray, seed: int) -> list[Units] | None:
    """Units on atoms at several sharpnesses, or None if most gradients have no twin."""
    dim = points.shape[1]
    if dim < FEWEST_DIMENSIONS or len(rows.z) < 10 * AT_ONCE:
        return None
    chosen = np.random.default_rng(seed).permutation(len(rows.z))[:LOOKED_AT]
    # Less the units on coordinates only: the quadratic would blur small rows.
    nothing = np.zeros((dim, dim + 1))
    left = rows.y[chosen] - predicted(nothing, best.units, best.head.weights, rows.z[chosen])
    gradients = left @ frame.forward.astype(np.float32)
    size = np.linalg.norm(gradients, axis=1)
    order = np.argsort(-size)
    gradients, size = gradients[order], np.maximum(size[order], 1e-30)
    found = cluster(gradients / size[:, None])
    if found is None:
        return None
    near = np.abs((gradients / size[:, None]) @ found.T)
    owner, own = near.argmax(axis=1), near.max(axis=1) > TWIN
    norms = np.array(
        [
            np.quantile(size[own & (owner == atom)], 0.98) if (own & (owner == atom)).sum() >= MEMBERS else 0
            for atom in range(len(found))
        ]
    )
    found, norms = found[norms > 0].astype(float), norms[norms > 0]
    directions = found * (norms / norms.mean())[:, None]
    units = []
    for sharpness in SHARPNESS:
        raw = sharpness * directions
        bends = np.column_stack([raw @ frame.backward, raw @ frame.centre])
        units.append(Units(bends, np.zeros((0, dim + 1)), np.zeros(len(raw), int), np.ones(1, bool)))
    return units


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
