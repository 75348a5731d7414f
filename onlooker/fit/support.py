"""The explored region: cells of a grid, where a fitted reward is trusted, and the nearest of them elsewhere.

A cell is explored if a Gaussian window about it, two cells or n^(−1/(N+4)) standard deviations wide, contains a few
points. Outside, R̂ is evaluated at the nearest explored cell, and log p is lowered by a wall e + 2e², with e the
distance to that cell in standard deviations.

Cells are wider than points that lie close to a line or a plane. A place must therefore also be within the outline of
the points along their principal axes, in standard deviations along each.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.ndimage import distance_transform_edt, gaussian_filter

from onlooker.fit.box import CELLS, Box

__all__ = ["Outline", "Support", "cell_counts", "outline_of", "support_of"]

# Points that a window must contain: with fewer, single outliers would count as explored.
FEWEST = 5.0
# Smallest width of the window in cells: a narrower one would leave holes between cells.
NARROWEST = 2.0


# Distance from the outermost points, in standard deviations along each principal axis, up to which a place is explored;
# and the least standard deviation, as a share of the largest: that of rounding.
BESIDE, ROUNDED = 0.5, 1e-9


class Outline(NamedTuple):
    """Ends of the points (dim,) along their principal axes, in standard deviations; ``forward`` leads to these."""

    forward: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def grown(self, points: np.ndarray) -> "Outline":
        """The outline with more points (n, dim)."""
        if not len(points):
            return self
        along = points @ self.forward.T
        return self._replace(low=np.minimum(self.low, along.min(axis=0)), high=np.maximum(self.high, along.max(axis=0)))

    def joined(self, other: "Outline") -> "Outline":
        """The outline of the points of both, which have the same axes."""
        return self._replace(low=np.minimum(self.low, other.low), high=np.maximum(self.high, other.high))

    def holds(self, points: np.ndarray) -> np.ndarray:
        """Whether points (n, dim) are inside, or not far from it."""
        along = points @ self.forward.T
        return ((along >= self.low - BESIDE) & (along <= self.high + BESIDE)).all(axis=1)


def outline_of(points: np.ndarray) -> Outline:
    """The outline of no points yet, along the principal axes of these (n, dim)."""
    variance, axes = np.linalg.eigh(np.atleast_2d(np.cov(points.T)))
    size = np.sqrt(np.maximum(variance, (ROUNDED * np.sqrt(variance[-1])) ** 2))
    empty = np.full(points.shape[1], np.inf)
    return Outline((axes / size).T, empty, -empty)


@dataclass(frozen=True)
class Support:
    """Explored cells of a box.

    Attributes
    ----------
    box
        The box.
    spread
        Standard deviations (dim,) of the points: the unit of distances.
    explored
        Whether each cell is explored.
    distance
        Distance of each cell to the nearest explored one.
    nearest
        Index (dim, …) of that cell.
    """

    box: Box
    spread: np.ndarray
    explored: np.ndarray
    distance: np.ndarray
    nearest: np.ndarray

    def _cells(self, points: np.ndarray) -> tuple[np.ndarray, ...]:
        share = (points - self.box.low) / (self.box.high - self.box.low)
        return tuple(np.clip((share * self.explored.shape[0]).astype(int), 0, self.explored.shape[0] - 1).T)

    def holds(self, points: np.ndarray) -> np.ndarray:
        return self.box.holds(points) & self.explored[self._cells(points)]

    def back(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Points moved to the nearest explored cell, and their distances to it."""
        cells = self._cells(points)
        beyond = np.maximum(np.maximum(self.box.low - points, points - self.box.high), 0) / self.spread
        excess = self.distance[cells] + np.linalg.norm(beyond, axis=1)
        width = (self.box.high - self.box.low) / self.explored.shape[0]
        centre = self.box.low + (np.stack([index[cells] for index in self.nearest], axis=1) + 0.5) * width
        return np.where(excess[:, None] > 0, centre, points), excess


def cell_counts(points: np.ndarray, box: Box, weights: np.ndarray | None = None) -> np.ndarray:
    """Weight of the points (n, dim) in each cell of a box."""
    cells = CELLS[points.shape[1]]
    edges = [np.linspace(low, high, cells + 1) for low, high in zip(box.low, box.high, strict=True)]
    return np.histogramdd(points, edges, weights=weights)[0]


def support_of(counts: np.ndarray, box: Box, spread: np.ndarray) -> Support:
    """The support of points with these counts per cell and this standard deviation (dim,)."""
    dim, cells = counts.ndim, counts.shape[0]
    width = (box.high - box.low) / cells / spread
    sigma = np.maximum(NARROWEST, max(counts.sum(), 1.0) ** (-1 / (dim + 4)) / width)
    window = gaussian_filter(counts, sigma, mode="constant") * (2 * np.pi) ** (dim / 2) * np.prod(sigma)
    explored = window >= FEWEST
    if not explored.any():
        raise ValueError(
            f"points are too few and too scattered ({counts.sum():.0f}) to tell where R is known; give more of them."
        )
    distance, nearest = distance_transform_edt(~explored, sampling=width, return_indices=True)
    return Support(box, spread, explored, distance, nearest)
