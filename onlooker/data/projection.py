"""y = W(θ − θ₀), with orthonormal rows of W: a projection of many parameters onto a few directions.

The gradient along them is W∇R. A reconstruction from (y, Wg) is the potential of the mean force: its gradient at y is
the average of W∇R over all visited θ that project to y. It equals R, up to a constant, if R is a sum of one part in
these directions and one part in the others, or if the points hardly vary in the others. Otherwise it is an average of R
that depends on where the learners were.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onlooker.core.messages import Message
from onlooker.core.settings import check_whole
from onlooker.data.observations import Observations

__all__ = ["Projection", "onto", "principal_components"]

# A direction whose independent part is at most this share of its length adds little but rounding errors.
DEPENDENT = 1e-6


@dataclass(frozen=True)
class Projection:
    """A few directions, and an origin.

    Attributes
    ----------
    directions
        W (few, many), with orthonormal rows.
    origin
        θ₀ (many,).
    explained
        The share of the trajectory's variance along the directions; nan if the directions were given.
    """

    directions: np.ndarray
    origin: np.ndarray
    explained: float = float("nan")

    @property
    def dim(self) -> int:
        return len(self.directions)

    @property
    def warning(self) -> Message:
        """The warning that R̂ is a potential of the mean force."""
        text = (
            f"R̂ is the potential of the mean force along {self.dim} directions of {self.directions.shape[1]}: R "
            "averaged over the visited points in the other directions."
        )
        return Message("projected", text, {"directions": self.dim, "dimensions": self.directions.shape[1]})

    @property
    def along_origin(self) -> np.ndarray:
        """Wθ₀ (few,): y + Wθ₀ are the coordinates of θ itself along the directions."""
        return self.directions @ self.origin

    def points(self, points: Any) -> np.ndarray:
        """Project points θ (…, many) to y (…, few)."""
        return (np.asarray(points) - self.origin) @ self.directions.T

    def gradients(self, gradients: Any) -> np.ndarray:
        """Project gradients ∇R (…, many) to W∇R (…, few)."""
        return np.asarray(gradients) @ self.directions.T

    def back(self, projected: Any) -> np.ndarray:
        """The θ in the subspace that projects to y (…, few)."""
        return self.origin + np.asarray(projected) @ self.directions

    def __call__(self, observations: Observations) -> Observations:
        """Project observations, and add the warning."""
        if observations.dim != self.directions.shape[1]:
            raise ValueError(
                f"observations have {observations.dim} dimensions but the directions have {self.directions.shape[1]}."
            )
        return replace(
            observations,
            points=self.points(observations.points),
            gradients=self.gradients(observations.gradients),
            warnings=(*observations.warnings, self.warning),
            projection=self,
        )


def onto(directions: Any, origin: Any = None) -> Projection:
    """Project on directions (few, many), which are made orthonormal one after the other; the first is only scaled.

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
        raise ValueError(f"directions has shape {rows.shape}; give finite numbers (directions, parameters).")
    turned, lengths = np.linalg.qr(rows.T)
    along = np.diag(lengths)
    if (np.abs(along) <= DEPENDENT * np.linalg.norm(rows, axis=1)).any():
        raise ValueError("directions are linearly dependent, or one is zero; leave out those that add nothing.")
    start = np.zeros(rows.shape[1]) if origin is None else np.asarray(origin, float)
    if start.shape != rows.shape[1:]:
        raise ValueError(
            f"origin has shape {start.shape} but directions {rows.shape}; give origin as ({rows.shape[1]},)."
        )
    return Projection((turned * np.sign(along)).T, start)


def principal_components(points: Any, count: int = 2) -> Projection:
    """The directions along which points (n, many) of a trajectory vary most; the origin is their mean.

    A few hundred points are enough for any number of parameters; the work is n² · many.
    """
    check_whole(count=count)
    rows = np.asarray(points, float)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError(f"points has shape {rows.shape}; give finite numbers (rows, parameters).")
    if count > min(rows.shape[1], len(rows) - 1):
        raise ValueError(f"count is {count} but points has shape {rows.shape}; give a smaller count, or more points.")
    origin = rows.mean(axis=0)
    centred = rows - origin
    if len(rows) < rows.shape[1]:
        variances, mixtures = np.linalg.eigh(centred @ centred.T)
        axes = centred.T @ mixtures[:, : -count - 1 : -1]
        axes /= np.linalg.norm(axes, axis=0)
    else:
        variances, directions = np.linalg.eigh(centred.T @ centred)
        axes = directions[:, : -count - 1 : -1]
    if not variances[-count] > DEPENDENT**2 * variances[-1]:
        raise ValueError(f"points vary along fewer than {count} directions; give a smaller count.")
    # The sign of an axis is arbitrary: make its largest entry positive.
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(count)])
    explained = variances[-count:].sum() / variances.sum()
    return Projection(np.ascontiguousarray(axes.T), origin, float(explained))
