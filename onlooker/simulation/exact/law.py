"""A law on a fine grid of cells: p(α) ∝ exp(βR(α)), or the solution of an equation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onlooker.core.histogram import Histogram

if TYPE_CHECKING:
    from onlooker.engine.accumulators import Grid

__all__ = ["GridLaw", "cells", "exact_law", "maxima"]


@dataclass(frozen=True)
class GridLaw:
    """Probability masses on equal cells.

    Attributes
    ----------
    axes
        Cell centres along each axis, equally spaced.
    mass
        (len(axis), …), summing to one.
    """

    axes: tuple[np.ndarray, ...]
    mass: np.ndarray

    def histogram(self, grid: "Grid") -> Histogram:
        """The same law in the bins of a grid; a cell counts where its centre lies."""
        edges = grid.histogram(np.zeros((grid.bins + 2) ** len(self.axes))).edges
        counts = self.mass
        for axis, (centres, bin_edges) in enumerate(zip(self.axes, edges, strict=True)):
            bins = np.searchsorted(bin_edges, centres, side="right")
            folded = np.zeros((*counts.shape[:axis], grid.bins + 2, *counts.shape[axis + 1 :]))
            np.add.at(np.moveaxis(folded, axis, 0), bins, np.moveaxis(counts, axis, 0))
            counts = folded
        return Histogram(edges, counts)

    @property
    def mean(self) -> np.ndarray:
        """The mean, (dim,)."""
        return np.array([np.tensordot(centres, self._marginal(axis), 1) for axis, centres in enumerate(self.axes)])

    @property
    def covariance(self) -> np.ndarray:
        """The covariance, (dim, dim)."""
        points = np.stack(np.meshgrid(*self.axes, indexing="ij"), axis=-1).reshape(-1, len(self.axes)) - self.mean
        return (points * self.mass.reshape(-1, 1)).T @ points

    def _marginal(self, axis: int) -> np.ndarray:
        return self.mass.sum(axis=tuple(other for other in range(self.mass.ndim) if other != axis))


def cells(low: float, high: float, width: float) -> np.ndarray:
    """Centres of the cells of the given width that fill [low, high]."""
    count = round((high - low) / width)
    return low + (np.arange(count) + 0.5) * (high - low) / count


def exact_law(reward: Callable[[np.ndarray], np.ndarray], axes: tuple[np.ndarray, ...], beta: float = 1.0) -> GridLaw:
    """p ∝ exp(βR) by the midpoint rule, R given at points (…, dim).

    Examples
    --------
    >>> law = exact_law(lambda x: -0.5 * (x[..., 0] - 1) ** 2, (cells(-7, 9, 0.01),), beta=4.0)
    >>> law.mean.round(4).tolist(), law.covariance.round(4).tolist()
    ([1.0], [[0.25]])
    """
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    log_mass = beta * reward(points)
    mass = np.exp(log_mass - log_mass.max())
    return GridLaw(axes, mass / mass.sum())


def maxima(reward: Callable[[np.ndarray], np.ndarray], law: GridLaw) -> list[np.ndarray]:
    """Local maxima of R, refined from those on the grid, the most probable first."""
    from scipy.optimize import minimize

    inner = law.mass[1:-1, 1:-1]
    neighbours = [
        law.mass[1 + row : law.mass.shape[0] - 1 + row, 1 + column : law.mass.shape[1] - 1 + column]
        for row in (-1, 0, 1)
        for column in (-1, 0, 1)
        if row or column
    ]
    rows, columns = np.nonzero(np.all([inner > other for other in neighbours], axis=0))
    order = np.argsort(-inner[rows, columns])
    peaks: list[np.ndarray] = []
    for i in order:
        start = np.array([law.axes[0][rows[i] + 1], law.axes[1][columns[i] + 1]])
        peak = minimize(lambda point: -float(reward(point)), start, tol=1e-10).x
        if not any(np.allclose(peak, other, atol=1e-3) for other in peaks):
            peaks.append(peak)
    return peaks
