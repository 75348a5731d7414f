"""Where the data are, on a grid of a box: the region a fitted reward is believed in, and the way back to it.

A cell counts as explored when a Gaussian window of a cell's width about it holds a few points. Outside, a fit knows
nothing: it is evaluated at the nearest explored cell, less a wall e + 2e² of the distance e to it in standard
deviations.
"""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import distance_transform_edt, gaussian_filter

from onlooker.field.cosine import Box

__all__ = ["Support", "support_of"]

CELLS = {1: 512, 2: 128, 3: 40}
# Points that a window of one cell's width must hold.
FEWEST = 3.0


@dataclass(frozen=True)
class Support:
    """Explored cells of a box.

    Attributes
    ----------
    box
        Where.
    spread
        (dim,) standard deviation of the points: the unit of distances.
    explored
        Which cells are.
    distance, nearest
        Of each cell to the nearest explored one, and its index (dim, …).
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
        """Points brought back to the nearest explored cell, and how far they were from it."""
        cells = self._cells(points)
        beyond = np.maximum(np.maximum(self.box.low - points, points - self.box.high), 0) / self.spread
        excess = self.distance[cells] + np.linalg.norm(beyond, axis=1)
        width = (self.box.high - self.box.low) / self.explored.shape[0]
        centre = self.box.low + (np.stack([index[cells] for index in self.nearest], axis=1) + 0.5) * width
        return np.where(excess[:, None] > 0, centre, points), excess


def support_of(points: np.ndarray, box: Box) -> Support:
    """The support of points (n, dim)."""
    dim = points.shape[1]
    cells, spread = CELLS[dim], points.std(axis=0, dtype=float)
    edges = [np.linspace(low, high, cells + 1) for low, high in zip(box.low, box.high, strict=True)]
    counts = np.histogramdd(points, edges)[0]
    window = gaussian_filter(counts, 1.0, mode="constant") * (2 * np.pi) ** (dim / 2)
    explored = window >= FEWEST
    width = (box.high - box.low) / cells / spread
    distance, nearest = distance_transform_edt(~explored, sampling=width, return_indices=True)
    return Support(box, spread, explored, distance, nearest)
