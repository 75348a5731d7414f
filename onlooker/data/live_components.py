"""The principal components of a log that grows: those of all rows so far, renewed when they have turned.

At FIRST rows, and whenever their number has doubled, the components of all rows are compared with those in use. Their
overlap ‖W W₀ᵀ‖²/k is 1 for the same subspace. Below ENOUGH the new ones are used, and earlier rows must be projected
again. The numbers of rows do not depend on the batches in which rows come, so a watch that is resumed finds the same.
"""

import numpy as np

from onlooker.data.components import BATCH, Components
from onlooker.data.projection import Projection

__all__ = ["FIRST", "LiveComponents"]

# Number of rows for the first components, and the overlap below which they are renewed: one direction of two that has
# turned by 40°.
FIRST, ENOUGH = 1000, 0.8


class LiveComponents:
    """The components in use.

    Attributes
    ----------
    rows
        Number of rows seen.
    projection
        The components; ``None`` before FIRST rows.
    """

    def __init__(self, count: int) -> None:
        self._components = Components(count)
        self._waiting = np.zeros((0, 0))
        self._due = FIRST
        self.rows = 0
        self.projection: Projection | None = None

    def add(self, points: np.ndarray) -> bool:
        """Add rows (n, many), all finite; returns whether other components are in use since."""
        self.rows += len(points)
        self._waiting = np.concatenate([self._waiting.reshape(-1, points.shape[1]), points])
        renewed = False
        # In whole blocks, so that the last bits do not depend on the batches either.
        while len(self._waiting) >= BATCH:
            self._components.add(self._waiting[:BATCH])
            self._waiting = self._waiting[BATCH:]
            if self._components.rows == self._due:
                self._due *= 2
                renewed |= self._look()
        return renewed

    def _look(self) -> bool:
        found = self._components.projection()
        if self.projection is not None:
            overlap = float(((found.directions @ self.projection.directions.T) ** 2).sum() / found.dim)
            if overlap > ENOUGH:
                return False
        self.projection = found
        return True
