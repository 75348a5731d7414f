"""Principal components of rows as they come: the mean, and the leading singular vectors of all rows so far.

Rows X̃ = X − mean of a batch join a summary (mean m, n rows, S V of rank r) as the singular vectors of

    [S V; X̃; √(n k/(n + k)) (m − mean X)],

cut to rank r again. The memory is r rows, whatever their number. What is cut is smaller than what is kept, so the first
components are those of all rows at once to the share of variance beyond rank r.
"""

import numpy as np

from onlooker.core.settings import check_whole
from onlooker.data.projection import Projection

__all__ = ["BATCH", "Components", "of_all"]

# Number of directions kept beside those that are asked for: what a later batch may bring forward.
SPARE = 16
# Rows that are added at once.
BATCH = 250
# Smallest share of the largest singular value that is a direction and not rounding.
FLAT = 1e-6


class Components:
    """The leading principal components of all rows that were added.

    Parameters
    ----------
    count
        Number of components.
    """

    def __init__(self, count: int) -> None:
        check_whole(count=count)
        self.count, self.rows = count, 0
        self._mean = np.zeros(0)
        self._summary = np.zeros((0, 0))
        self._total = 0.0
        self._signs: np.ndarray | None = None

    def add(self, points: np.ndarray) -> None:
        """Add rows (n, many)."""
        for first in range(0, len(points), BATCH):
            self._add(np.asarray(points[first : first + BATCH], float))

    def _add(self, batch: np.ndarray) -> None:
        count, mean = len(batch), batch.mean(axis=0)
        if not self.rows:
            self._mean, self._summary = np.zeros_like(mean), np.zeros((0, len(mean)))
        apart = np.sqrt(self.rows * count / (self.rows + count)) * (self._mean - mean)
        stacked = np.concatenate([self._summary, batch - mean, apart[None]])
        self._total += float(((batch - mean) ** 2).sum() + (apart**2).sum())
        self._mean += (mean - self._mean) * (count / (self.rows + count))
        self.rows += count
        # The Gram matrix is small: rows are fewer than parameters, or both are few.
        values, mixtures = np.linalg.eigh(stacked @ stacked.T)
        kept = values > max(values[-1], 0.0) * FLAT**2
        kept[: -(self.count + SPARE)] = False
        self._summary = (mixtures[:, kept].T @ stacked)[::-1]

    def projection(self) -> Projection:
        """The directions, with their signs as before, from the mean of the rows; a ValueError if there are too few."""
        lengths = np.linalg.norm(self._summary, axis=1)[: self.count]
        if len(lengths) < self.count:
            raise ValueError(
                f"points vary along fewer than {self.count} directions; give a smaller count, or more rows."
            )
        axes = self._summary[: self.count] / lengths[:, None]
        # Rounding leaves them nearly orthogonal.
        turned, scale = np.linalg.qr(axes.T)
        axes = (turned * np.sign(np.diag(scale))).T
        if self._signs is None:
            signs = np.sign(axes[np.arange(self.count), np.abs(axes).argmax(axis=1)])
        else:
            signs = np.sign((axes * self._signs).sum(axis=1))
        axes *= np.where(signs == 0, 1.0, signs)[:, None]
        self._signs = axes
        return Projection(axes, self._mean.copy(), float((lengths**2).sum() / max(self._total, 1e-300)))


def of_all(points: np.ndarray, count: int) -> Projection:
    """The components of all these rows, in one pass."""
    components = Components(count)
    components.add(points)
    return components.projection()
