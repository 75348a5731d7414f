"""The box about the points that fits on a grid live on."""

from dataclasses import dataclass

import numpy as np

__all__ = ["CELLS", "Box", "box_of"]

# Cells per axis of a grid, by dimension: at most 64 000 in all. Above three dimensions there is no grid.
CELLS = {1: 512, 2: 128, 3: 40}
# Share of points left out of the box at either end of an axis: a few outliers would make it too wide for the grid.
LEFT_OUT = 0.0005


@dataclass(frozen=True)
class Box:
    """A box with corners ``low`` and ``high`` (dim,)."""

    low: np.ndarray
    high: np.ndarray

    @property
    def rate(self) -> np.ndarray:
        """du/dx, with u from 0 to π across the box."""
        return np.pi / (self.high - self.low)

    def angles(self, points: np.ndarray) -> np.ndarray:
        """u at points (n, dim)."""
        return (points - self.low) * self.rate

    def holds(self, points: np.ndarray) -> np.ndarray:
        """Whether points (n, dim) are inside."""
        return np.all((points >= self.low) & (points <= self.high), axis=1)


def box_of(points: np.ndarray, margin: float) -> Box:
    """The box of all but a few outermost points (n, dim), plus a margin in units of its widths."""
    low, high = np.stack([np.quantile(column, [LEFT_OUT, 1 - LEFT_OUT]) for column in points.T], axis=1)
    # The quantiles coincide for a coordinate that hardly ever moves.
    low, high = np.where(low < high, low, points.min(axis=0)), np.where(low < high, high, points.max(axis=0))
    return Box(low - margin * (high - low), high + margin * (high - low))
