"""Two groups of agents that follow different rewards: each agent is in the one whose reward leaves less of it.

What a fit leaves of the rows of group g is r = ∇q_g + noise, with q_g a quadratic: what its reward is more than R̂, as
far as a quadratic can tell. Its coefficients are θ_g = (Σ_a M_a)⁻¹Σ_a t_a over the agents of the group, M and t their
normal equations. Agents move to the quadratic that leaves them less, round after round (clusterwise regression, Späth
1979), from starts along the directions in which agents' own coefficients differ most.

Every second row of an agent chooses; the others judge. Groups of agents that all follow one reward explain nothing of
rows that were not used to make them.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

__all__ = ["Split", "two_groups"]

# Rows that are looked at at most, agents of a group at least, rounds, and starts.
MOST_ROWS, FEWEST, ROUNDS, STARTS = 1 << 16, 3, 12, 3
# Terms up to which products of coordinates are among them.
MOST_TERMS = 20
# p-value above which no groups are suggested.
SURE = 0.01


class Split(NamedTuple):
    """Two groups of agents.

    Attributes
    ----------
    agents
        The agents.
    groups
        0 for those (agents,) of the larger group, 1 for the others.
    explained
        Share of what R̂ leaves of rows not used for it that the two groups explain.
    chance
        p-value of that.
    """

    agents: np.ndarray
    groups: np.ndarray
    explained: float
    chance: float


class _Sums(NamedTuple):
    """Normal equations of each agent: M (agents, terms, terms), t (agents, terms) and Σ|r|² (agents,)."""

    matrix: np.ndarray
    towards: np.ndarray
    squares: np.ndarray

    def left(self, terms: np.ndarray) -> np.ndarray:
        """Σ|r − ∇q|² (agents,) for the quadratic with these coefficients."""
        return self.squares - 2 * self.towards @ terms + np.einsum("p,apq,q->a", terms, self.matrix, terms)

    def solved(self, some: np.ndarray) -> np.ndarray:
        """θ of some agents."""
        matrix = self.matrix[some].sum(axis=0)
        matrix += 1e-6 * np.trace(self.matrix.sum(axis=0)) / len(matrix) * np.eye(len(matrix))
        return np.linalg.solve(matrix, self.towards[some].sum(axis=0))


def two_groups(points: np.ndarray, gradients: np.ndarray, agents: np.ndarray, fit: Any) -> Split | None:
    """Groups that explain more than chance of what a fit leaves of rows (n, dim), or None."""
    names, owner = np.unique(agents, return_inverse=True)
    step = -(-len(points) // MOST_ROWS)
    order = np.argsort(owner, kind="stable")
    order = order[: len(order) // (2 * step) * 2 * step].reshape(-1, 2, step)[:, :, 0].ravel() if step > 1 else order
    points, gradients, owner = points[order].astype(float), gradients[order].astype(float), owner[order]
    left = gradients - fit.gradient(points)
    usable = np.isfinite(left).all(axis=1)
    spread, noise = points.std(axis=0), left[usable].std(axis=0)
    z, rate = (points - points.mean(axis=0)) / spread, 1 / (spread * np.maximum(noise, 1e-300))
    left = np.where(usable[:, None], left / np.maximum(noise, 1e-300), 0)
    first = np.concatenate([[True], owner[1:] != owner[:-1]])
    place = np.arange(len(owner)) - np.maximum.accumulate(np.where(first, np.arange(len(owner)), 0))
    chooses, judges = (_sums(z, left, rate, owner, usable & (place % 2 == side), len(names)) for side in (0, 1))
    best = min((_climbed(chooses, start) for start in _starts(chooses)), key=lambda one: one[1], default=None)
    if best is None or min(best[0].sum(), (~best[0]).sum()) < FEWEST:
        return None
    groups = best[0]
    together = judges.left(chooses.solved(np.ones(len(names), bool)))
    apart = np.where(groups, judges.left(chooses.solved(groups)), judges.left(chooses.solved(~groups)))
    gain = (together - apart)[judges.squares > 0]
    chance = float(stdtr(len(gain) - 1, -gain.mean() / max(gain.std() / np.sqrt(len(gain)), 1e-300)))
    if chance > SURE:
        return None
    smaller = groups if groups.sum() <= len(groups) / 2 else ~groups
    return Split(names, smaller.astype(int), float(gain.sum() / judges.squares.sum()), chance)


def _sums(z: np.ndarray, left: np.ndarray, rate: np.ndarray, owner: np.ndarray, some: np.ndarray, count: int) -> _Sums:
    """The normal equations of each agent from some of the rows."""
    dim = z.shape[1]
    terms = []
    for axis in range(dim):
        even = np.zeros_like(z)
        even[:, axis] = rate[axis]
        terms += [even, even * z]
    if dim * (dim + 3) // 2 <= MOST_TERMS:
        for one in range(dim):
            for other in range(one):
                both = np.zeros_like(z)
                both[:, one], both[:, other] = z[:, other] * rate[one], z[:, one] * rate[other]
                terms.append(both)
    kept = [term[some] for term in terms]
    owner, left = owner[some], left[some]
    matrix, towards = np.zeros((count, len(kept), len(kept))), np.zeros((count, len(kept)))
    for row, term in enumerate(kept):
        towards[:, row] = np.bincount(owner, (term * left).sum(axis=1), count)
        for column in range(row + 1):
            products = np.bincount(owner, (term * kept[column]).sum(axis=1), count)
            matrix[:, row, column] = matrix[:, column, row] = products
    return _Sums(matrix, towards, np.bincount(owner, (left**2).sum(axis=1), count))


def _starts(sums: _Sums) -> list[np.ndarray]:
    """Groups on either side of the mean of agents' own coefficients, shrunk, along the axes of their spread."""
    mean = sums.matrix.mean(axis=0)
    own = np.linalg.solve(sums.matrix + mean, sums.towards[:, :, None])[:, :, 0]
    own = (own - own.mean(axis=0)) @ np.linalg.cholesky(mean + 1e-9 * np.trace(mean) * np.eye(len(mean)))
    axes = np.linalg.svd(own, full_matrices=False)[0].T[:STARTS]
    return [axis > axis.mean() for axis in axes]


def _climbed(sums: _Sums, groups: np.ndarray) -> tuple[np.ndarray, float]:
    """Groups after some rounds, and what they leave."""
    for _ in range(ROUNDS):
        if not 0 < groups.sum() < len(groups):
            break
        one, other = sums.left(sums.solved(groups)), sums.left(sums.solved(~groups))
        moved = one < other
        if (moved == groups).all():
            break
        groups = moved
    if not 0 < groups.sum() < len(groups):
        return groups, np.inf
    return groups, float(sums.left(sums.solved(groups))[groups].sum() + sums.left(sums.solved(~groups))[~groups].sum())
