"""The explored region on a grid: where a fitted reward is trusted, and the nearest explored cell elsewhere.

A cell is explored if a Gaussian window about it, two cells or n^(−1/(N+4)) standard deviations wide, contains a few
points. Outside, R̂ is evaluated at the nearest explored cell, and log p is lowered by a wall e + 2e², with e the
distance to that cell in standard deviations.
"""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import distance_transform_edt, gaussian_filter

from onlooker.fit.box import CELLS, Box

__all__ = ["Support", "cell_counts", "support_of"]

# Points that a window must contain: with fewer, single outliers would count as explored.
FEWEST = 5.0
# Smallest width of the window in cells: a narrower one would leave holes between cells.
NARROWEST = 2.0


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
