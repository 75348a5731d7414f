"""A density p on a box as piecewise constant cells, halved where p varies much within a cell of notable mass.

A narrow ridge, such as the active constraint of a penalised reward, may be thinner than any uniform grid resolves.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["Cells", "law_on_cells"]

# Total error at which division ends. The error of a cell is mass·Δ²/24, with Δ the change of log p across it.
TOLERATED = 1e-3
# Δ is capped at the first when errors are compared; a cell with Δ above the second is reported as too coarse.
ROUGHEST, TOO_ROUGH = 6.0, 2.0
# Limits on memory and time: 500 000 cells in three dimensions take 30 MB; seven halvings resolve 1/128 of a cell.
MOST_CELLS = 500_000
MOST_HALVINGS = 7


@dataclass(frozen=True)
class Cells:
    """Cells that fill a box.

    Attributes
    ----------
    low
        Lower corners (n, dim).
    width
        Widths (n, dim).
    mass
        Probabilities (n,), of sum one.
    rough
        Share of the mass in cells that are too coarse because the number of cells is limited.
    """

    low: np.ndarray
    width: np.ndarray
    mass: np.ndarray
    rough: float

    def draw(self, count: int, seed: int) -> np.ndarray:
        """Independent draws, (count, dim)."""
        generator = np.random.default_rng(seed)
        total = np.cumsum(self.mass)
        chosen = np.minimum(np.searchsorted(total, generator.random(count) * total[-1]), len(self.mass) - 1)
        return self.low[chosen] + generator.random((count, self.low.shape[1])) * self.width[chosen]


def law_on_cells(
    log_density: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray, cells: int
) -> Cells:
    """exp(log_density) on a box.

    Parameters
    ----------
    log_density
        log p up to a constant, of points (n, dim).
    low
        Lower corner (dim,) of the box.
    high
        Upper corner (dim,) of the box.
    cells
        Cells per axis before any is divided.
    """
    dim = len(low)
    width = (high - low) / cells
    corners = np.stack(np.meshgrid(*[np.arange(cells)] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    corner = low + corners * width
    height = log_density(corner + width / 2)
    # On the first grid, Δ is the difference between neighbours.
    grid = height.reshape((cells,) * dim)
    rough = np.zeros_like(grid)
    for axis in range(dim):
        jump = np.abs(np.diff(grid, axis=axis))
        rough = np.maximum(rough, np.maximum(_padded(jump, axis, 0), _padded(jump, axis, 1)))
    rough = rough.reshape(-1)

    halves = np.stack(np.meshgrid(*[[0.0, 0.5]] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    whole = []
    for _ in range(MOST_HALVINGS):
        divide = _worth_dividing(height, rough, 2**dim)
        if not divide.any():
            break
        whole.append((corner[~divide], width, height[~divide], rough[~divide]))
        corner = (corner[divide, None] + halves * width).reshape(-1, dim)
        width = width / 2
        height = log_density(corner + width / 2)
        family = height.reshape(-1, 2**dim)
        rough = np.repeat(np.ptp(family, axis=1), 2**dim)
    whole.append((corner, width, height, rough))
    parts = [(corner, np.broadcast_to(width, corner.shape), *others) for corner, width, *others in whole]
    lows, widths, heights, roughness = (np.concatenate(parts) for parts in zip(*parts, strict=True))
    log_mass = heights - heights.max() + np.log(widths / (high - low)).sum(axis=1)
    mass = np.exp(log_mass - log_mass.max())
    mass = mass / mass.sum()
    return Cells(lows, widths, mass, float(mass[roughness > TOO_ROUGH].sum()))


def _worth_dividing(height: np.ndarray, rough: np.ndarray, children: int) -> np.ndarray:
    """Which of equally large cells to divide: those of largest error, until the rest adds up to what is tolerated."""
    # At the edge of a cell log p may be higher than at its centre by Δ/2.
    mass = np.exp(np.minimum(height + rough / 2 - height.max(), 0))
    wrong = mass / mass.sum() * np.minimum(rough, ROUGHEST) ** 2 / 24
    order = np.argsort(wrong)
    divide = np.zeros(len(height), bool)
    divide[order[np.cumsum(wrong[order]) > TOLERATED][-(MOST_CELLS // children) :]] = True
    return divide


def _padded(jump: np.ndarray, axis: int, end: int) -> np.ndarray:
    """Pad with a row of zeros before (``end`` 0) or after (1) along an axis."""
    pad = [(0, 0)] * jump.ndim
    pad[axis] = (1, 0) if end == 0 else (0, 1)
    return np.pad(jump, pad)
