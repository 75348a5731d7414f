"""y = W(θ − θ₀), with orthonormal rows of W: a few directions of many parameters.

The gradient along them is W∇R. What is reconstructed from (y, Wg) is the potential of the mean force: its gradient at
y is the average of W∇R over all θ that learners visited above y. It is R itself, up to a constant, where R is a sum of
a part in these directions and a part in the others, or where the others hardly vary; elsewhere it is R averaged in that
sense, and it depends on where the learners were.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onlooker.check import check_whole
from onlooker.observe.observation import Observations

__all__ = ["Projection", "onto", "principal_components"]

# Directions that differ by less than this share of their length are one.
DEPENDENT = 1e-6


@dataclass(frozen=True)
class Projection:
    """A few directions, and the place they are seen from.

    Attributes
    ----------
    directions
        W, (few, many), orthonormal rows.
    origin
        θ₀, (many,).
    explained
        The share of the trajectory's variance along them; nan if they were given.
    """

    directions: np.ndarray
    origin: np.ndarray
    explained: float = float("nan")

    @property
    def dim(self) -> int:
        return len(self.directions)

    @property
    def note(self) -> str:
        """What R̂ along them is."""
        return (
            f"R̂ is the potential of the mean force along {self.dim} directions of {self.directions.shape[1]}: R "
            "averaged over where learners were in the others."
        )

    def points(self, points: Any) -> np.ndarray:
        """y of θ (…, many)."""
        return (np.asarray(points) - self.origin) @ self.directions.T

    def gradients(self, gradients: Any) -> np.ndarray:
        """W∇R of ∇R (…, many)."""
        return np.asarray(gradients) @ self.directions.T

    def back(self, projected: Any) -> np.ndarray:
        """The θ of a y (…, few) that lies in the subspace."""
        return self.origin + np.asarray(projected) @ self.directions

    def __call__(self, seen: Observations) -> Observations:
        """Observations along the directions."""
        if seen.dim != self.directions.shape[1]:
            raise ValueError(f"points has {seen.dim} dimensions but the directions {self.directions.shape[1]}.")
        return replace(
            seen,
            points=self.points(seen.points),
            gradients=self.gradients(seen.gradients),
            notes=(*seen.notes, self.note),
        )


def onto(directions: Any, origin: Any = None) -> Projection:
    """Directions (few, many), made orthonormal one after the other: the first keeps its own.

    Examples
    --------
    >>> along = onto([[3.0, 4.0, 0.0]], origin=[1.0, 0.0, 0.0])
    >>> along.directions.round(3).tolist()
    [[0.6, 0.8, 0.0]]
    >>> along.points([[6.0, 0.0, 2.0]]).round(3).tolist()
    [[3.0]]
    """
    rows = np.atleast_2d(np.asarray(directions, float))
    if rows.ndim != 2 or not np.isfinite(rows).all() or rows.shape[0] > rows.shape[1]:
        raise ValueError(f"directions has shape {rows.shape}; give finite numbers, (few, many).")
    turned, lengths = np.linalg.qr(rows.T)
    along = np.diag(lengths)
    if (np.abs(along) <= DEPENDENT * np.linalg.norm(rows, axis=1)).any():
        raise ValueError("directions depend on each other, or one is zero; leave out those that add nothing.")
    start = np.zeros(rows.shape[1]) if origin is None else np.asarray(origin, float)
    if start.shape != rows.shape[1:]:
        raise ValueError(f"origin has shape {start.shape} beside directions of {rows.shape}; give ({rows.shape[1]},).")
    return Projection((turned * np.sign(along)).T, start)


def principal_components(points: Any, count: int = 2) -> Projection:
    """The directions along which points (n, many) of a trajectory vary most, seen from their mean.

    A few hundred points are enough, of however many parameters: the work is n² of them.
    """
    check_whole(count=count)
    rows = np.asarray(points, float)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError(f"points has shape {rows.shape}; give finite numbers, (rows, parameters).")
    if count > min(rows.shape[1], len(rows) - 1):
        raise ValueError(f"count is {count} but points has shape {rows.shape}; ask for fewer, or give more points.")
    origin = rows.mean(axis=0)
    away = rows - origin
    if len(rows) < rows.shape[1]:
        variances, mixtures = np.linalg.eigh(away @ away.T)
        axes = away.T @ mixtures[:, : -count - 1 : -1]
        axes /= np.linalg.norm(axes, axis=0)
    else:
        variances, directions = np.linalg.eigh(away.T @ away)
        axes = directions[:, : -count - 1 : -1]
    if not variances[-count] > DEPENDENT**2 * variances[-1]:
        raise ValueError(f"points vary along fewer than {count} directions; ask for fewer.")
    # An axis has no sign of its own: its largest entry is positive.
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(count)])
    explained = variances[-count:].sum() / variances.sum()
    return Projection(np.ascontiguousarray(axes.T), origin, float(explained))
