"""A law on a box by cells: p at their centres, halved wherever p changes much across one that counts.

A narrow ridge, such as the active constraint of a penalised reward, may be thinner than any even grid can show.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["Cells", "law_on_cells"]

# A cell whose log density is this far below the highest does not count.
DEPTH = 20.0
# log p may differ by this much between the parts of a cell that is not divided further.
ROUGHEST = 0.5
MOST_CELLS = 3_000_000
MOST_HALVINGS = 6


@dataclass(frozen=True)
class Cells:
    """Boxes that fill a box.

    Attributes
    ----------
    low, width
        (n, dim) each.
    mass
        (n,), of sum one.
    """

    low: np.ndarray
    width: np.ndarray
    mass: np.ndarray

    def draw(self, count: int, seed: int) -> np.ndarray:
        """Independent draws, (count, dim)."""
        generator = np.random.default_rng(seed)
        total = np.cumsum(self.mass)
        chosen = np.minimum(np.searchsorted(total, generator.random(count) * total[-1]), len(self.mass) - 1)
        return self.low[chosen] + generator.random((count, self.low.shape[1])) * self.width[chosen]


def law_on_cells(
    log_density: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray, cells: int
) -> Cells:
    """exp(log_density) on the box from ``low`` to ``high``, from ``cells`` per axis on."""
    dim = len(low)
    width = (high - low) / cells
    corners = np.stack(np.meshgrid(*[np.arange(cells)] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    corner = low + corners * width
    height = log_density(corner + width / 2)
    # On the first grid, from cell to cell.
    grid = height.reshape((cells,) * dim)
    rough = np.zeros_like(grid)
    for axis in range(dim):
        jump = np.abs(np.diff(grid, axis=axis))
        before, after = (_padded(jump, axis, end) for end in (0, 1))
        rough = np.maximum(rough, np.maximum(before, after))
    divide = (rough.reshape(-1) > ROUGHEST) & (height + rough.reshape(-1) > height.max() - DEPTH)

    halves = np.stack(np.meshgrid(*[[0.0, 0.5]] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    top, whole = height.max(), []
    for _ in range(MOST_HALVINGS):
        if not divide.any() or divide.sum() * 2**dim > MOST_CELLS:
            break
        whole.append((corner[~divide], width, height[~divide]))
        corner = (corner[divide, None] + halves * width).reshape(-1, dim)
        width = width / 2
        height = log_density(corner + width / 2)
        top = max(top, height.max())
        family = height.reshape(-1, 2**dim)
        rough_ones = (np.ptp(family, axis=1) > ROUGHEST) & (family.max(axis=1) > top - DEPTH)
        divide = np.repeat(rough_ones, 2**dim)
    whole.append((corner, width, height))
    parts = [(corner, np.broadcast_to(width, corner.shape), height) for corner, width, height in whole]
    lows, widths, heights = (np.concatenate(parts) for parts in zip(*parts, strict=True))
    log_mass = heights - heights.max() + np.log(widths / (high - low)).sum(axis=1)
    mass = np.exp(log_mass - log_mass.max())
    return Cells(lows, widths, mass / mass.sum())


def _padded(jump: np.ndarray, axis: int, end: int) -> np.ndarray:
    """With a row of zeros before (0) or after (1) along an axis."""
    pad = [(0, 0)] * jump.ndim
    pad[axis] = (1, 0) if end == 0 else (0, 1)
    return np.pad(jump, pad)
