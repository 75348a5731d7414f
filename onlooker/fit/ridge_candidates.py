"""Candidates for a dictionary: units with a head solved on fitted rows, judged by what they leave of held-out rows."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from onlooker.fit.active_subspace import Active, active_subspace
from onlooker.fit.ridge_frame import Frame, Pairs, Rows
from onlooker.fit.ridge_system import Head, solve
from onlooker.fit.ridge_units import Units, gather, predicted

__all__ = ["Candidate", "Sample", "best_of", "significantly"]

# Candidates of more units than these are solved on fewer rows.
MANY_UNITS, FEWER_ROWS = 256, 1 << 16


class Candidate(NamedTuple):
    """Units, their head, and their loss on each group of held-out rows."""

    units: Units
    head: Head
    losses: np.ndarray

    @property
    def loss(self) -> float:
        """Mean held-out loss."""
        return float(self.losses.mean())

    def better(self, other: "Candidate", by: float = 0.0) -> bool:
        """Whether the mean loss is lower by this number of paired standard errors."""
        return significantly(other.losses - self.losses, by)


def significantly(gains: np.ndarray, by: float) -> bool:
    """Whether the mean of gains (groups,) exceeds so many standard errors."""
    return bool(gains.mean() > by * gains.std() / np.sqrt(len(gains)))


def best_of(candidates: Sequence[Candidate]) -> Candidate:
    """The candidate of least held-out loss."""
    return min(candidates, key=lambda one: one.loss)


class Sample:
    """The rows that a dictionary is chosen on.

    Parameters
    ----------
    points
        Raw points of the fitted rows.
    rows
        The fitted rows.
    held
        Held-out rows.
    owners
        The agent, or group, of each held-out row.
    frame
        The frame.
    pairs
        Pairs of fitted rows of independent noise and alike gradients; ``None`` if there are none.
    seed
        Seed of all random numbers.
    """

    def __init__(
        self,
        points: np.ndarray,
        rows: Rows,
        held: Rows,
        owners: np.ndarray,
        frame: Frame,
        pairs: Pairs | None,
        seed: int,
    ):
        self.points, self.rows, self.held, self.frame, self.pairs, self.seed = points, rows, held, frame, pairs, seed
        self.dim = rows.z.shape[1]
        self.precision = frame.precision
        self.owners = np.unique(owners, return_inverse=True)[1]
        self.groups = int(self.owners.max()) + 1

    def candidate(self, units: Units, most: int | None = None) -> Candidate:
        """Solve for units on at most so many of the fitted rows."""
        rows, held = self.rows, self.held
        most = most or (FEWER_ROWS if units.number > MANY_UNITS else len(rows.z))
        _, head = solve(gather(units, *rows.at_most(most)), gather(units, *held), units, self.precision)
        squares = (held.y - predicted(head.affine, units, head.weights, held.z)) ** 2
        loss = held.weights * (squares @ self.precision.astype(np.float32)) / self.dim
        losses = np.bincount(self.owners, loss, self.groups) / held.weights.sum() * self.groups
        return Candidate(units, head, losses)

    def left(self, one: Candidate, rows: Rows) -> np.ndarray:
        """What a candidate leaves of rows (n, dim)."""
        return rows.y - predicted(one.head.affine, one.units, one.head.weights, rows.z)

    def active(self, residuals: np.ndarray) -> Active | None:
        """The active subspace of what is left (n, dim) of the fitted rows."""
        if self.pairs is None:
            return None
        return active_subspace(residuals, self.rows.weights, self.precision, self.pairs, self.seed)

    def products(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """Mean products (groups, candidates, candidates) of what candidates leave of the held-out rows."""
        root = np.sqrt(self.held.weights[:, None] * self.precision.astype(np.float32) / self.dim)
        left = np.stack([(self.left(one, self.held) * root) for one in candidates])
        order = np.argsort(self.owners, kind="stable")
        edges = np.searchsorted(self.owners[order], np.arange(self.groups + 1))
        parts = [left[:, order[first:last]].reshape(len(left), -1) for first, last in pairwise(edges)]
        return np.stack([part @ part.T for part in parts]).astype(float) / self.held.weights.sum() * self.groups
