"""What is known of the weights: `LinearSums` of the features and of the suspects, which all calls add their rows to.

    begin(sample) → sums;   sums.add(rows);   sums.joined(other);   sums.forget(share)

Suspects are terms that agents may climb besides the features: −½|θ|² (weight decay) always, and those that the features
know of. They are kept whether they show or not; to look first would be to select.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from onlooker.explanation.features import Features
from onlooker.fit.linear import LinearSums, begin_linear

__all__ = ["DECAY", "Gathered", "gather"]

DECAY = "weight decay"
# Rows of the sample that D is computed from: at most, at least, and as many as have this number of Jacobians' numbers.
MOST, FEWEST, NUMBERS = 256, 8, 1 << 24


@dataclass
class Gathered:
    """Sums over rows, and the features that they are of.

    Attributes
    ----------
    features
        The features.
    sums
        Their sums: columns are the features, then weight decay, then other suspects.
    count
        k, the number of features.
    total, rows
        Σψ (k,) over the rows, if ψ is known, and their number.
    """

    features: Features
    sums: LinearSums
    count: int
    total: np.ndarray | None = None
    rows: int = 0

    @property
    def suspects(self) -> tuple[str, ...]:
        """Names of the columns after the features."""
        return (DECAY, *self.features.suspects)

    def add(
        self, points: np.ndarray, gradients: np.ndarray, agents: Any = None, times: Any = None, rows: Any = None
    ) -> None:
        """Add rows, those of each agent in the order of its steps.

        Parameters
        ----------
        points
            (n, dim).
        gradients
            (n, dim), or (parts, n, dim).
        agents, times
            (n,) of each row, or ``None``: the signs of gradients are then not checked.
        rows
            (n,) numbers of the rows, for features that are known row by row.
        """
        n, step = len(points), max(1, NUMBERS // (points.shape[1] * self.sums.features * self.sums.parts))
        for first in range(0, n, step):
            chosen = slice(first, first + step)
            numbers = np.arange(self.rows, self.rows + len(points[chosen])) if rows is None else rows[chosen]
            values, jacobians = columns_of(self.features, points[chosen], numbers)
            if values is not None:
                self.total = values.sum(axis=0, dtype=float) + (0 if self.total is None else self.total)
            self.sums.add(
                jacobians,
                gradients[..., chosen, :],
                None if agents is None else agents[chosen],
                None if times is None else times[chosen],
                # Steps between rows of unknown agents are no steps.
                None if agents is None else points[chosen],
            )
            self.rows += len(numbers)

    def joined(self, other: "Gathered") -> "Gathered":
        """The rows of both."""
        total = self.total if other.total is None else other.total + (0 if self.total is None else self.total)
        return Gathered(self.features, self.sums.joined(other.sums), self.count, total, self.rows + other.rows)

    def forget(self, share: float) -> None:
        """Multiply the weight of everything added so far by 1 − share."""
        self.sums.forget(share)

    @property
    def mean(self) -> np.ndarray | None:
        """The mean of ψ over the rows, (k,)."""
        return None if self.total is None else self.total / max(self.rows, 1)


def columns_of(features: Features, points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """ψ if known, and transposed Jacobians (parts, n, k + suspects, dim)."""
    values, jacobians = features.at(points, rows)
    if not np.isfinite(jacobians).all():
        _, row, feature, _ = np.argwhere(~np.isfinite(jacobians))[0]
        name = features.names[feature] if features.names else f"feature {feature + 1}"
        raise ValueError(f"the Jacobian of {name} holds a NaN or an infinity at row {rows[row]}; leave the row out.")
    others = np.concatenate([-points[:, None].astype(jacobians.dtype), features.suspected(points)], axis=1)
    others = np.broadcast_to(others.astype(jacobians.dtype), (len(jacobians), *others.shape))
    return values, np.concatenate([jacobians, others], axis=2)


def gather(features: Features, points: np.ndarray, gradients: np.ndarray, rows: np.ndarray) -> Gathered:
    """Empty sums for rows like those of a sample.

    Parameters
    ----------
    features
        The features.
    points, gradients
        (n, dim) and (n, dim) or (parts, n, dim).
    rows
        (n,) numbers of the rows.
    """
    n, dim = points.shape
    width = len(features.names) or 8
    size = int(np.clip(NUMBERS // (dim * width * features.parts), FEWEST, MOST))
    chosen = np.unique(np.linspace(0, n - 1, min(n, size)).astype(int))
    _, jacobians = columns_of(features, points[chosen], rows[chosen])
    count = jacobians.shape[2] - 1 - len(features.suspects)
    if features.names and len(features.names) != count:
        raise ValueError(f"names has {len(features.names)} entries but there are {count} features; give one for each.")
    return Gathered(features, begin_linear(jacobians, gradients[..., chosen, :]), count)
