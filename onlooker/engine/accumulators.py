"""Running sums over positions, kept instead of the positions: a grid, marginals, moments.

Each accumulator has two pure functions of arrays: ``init`` returns zeros, and ``add`` adds positions of shape
(groups, rows, dim, width) where ``keep``, of shape (groups, rows, width), is true. `run` sums the results in 64 bits:
no count stops growing at 2²⁴ or overflows at 2³¹.

A grid or marginals with a forgetting rate γ weigh a position of age k steps by (1 − γ)^k: they count the last 1/γ
steps or so, and R̂ read off them follows a reward that changes.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.forgetting import weight_left
from onlooker.core.histogram import Histogram
from onlooker.core.settings import check_share, check_whole

__all__ = ["Grid", "Marginals", "Moments", "accumulate"]


def accumulate(
    accumulator: "Grid | Marginals", counts: Array, positions: Array, keep: Array, ages: Array, steps: Array
) -> Array:
    """Counts after ``steps`` more steps, with new positions whose ages (rows,) are given in steps."""
    rate = accumulator.forgetting
    if rate is None:
        return accumulator.add(counts, positions, keep)
    # The block is added up by itself first: a single weight may be too small to change the total, a block's sum is not.
    weights, faded = (
        weight_left(rate, jnp.asarray(age, counts.dtype)).astype(counts.dtype) for age in (jnp.maximum(ages, 0), steps)
    )
    return counts * faded + accumulator.add(jnp.zeros_like(counts), positions, keep, weights)


def _dtype(forgetting: float | None) -> type:
    return np.int32 if forgetting is None else np.float32


def _bins(position: Array, low: float, high: float, bins: int) -> Array:
    """Bin 1…bins inside [low, high), 0 below, bins + 1 above; NaN counts as below."""
    scaled = (position - low) * (bins / (high - low))
    inside = jnp.clip(scaled, 0, bins - 1).astype(jnp.int32) + 1
    return jnp.where(scaled >= 0, jnp.where(scaled < bins, inside, bins + 1), 0)


@dataclass(frozen=True)
class Grid:
    """A joint histogram on a box, for dim ≤ 3: ``bins`` per axis and two overflow bins each; it may forget.

    Attributes
    ----------
    low
        Lower corner of the box, one number per axis.
    high
        Upper corner of the box, one number per axis.
    bins
        Number of bins per axis.
    forgetting
        γ: a position of age k steps weighs (1 − γ)^k; by default all weigh the same.

    Examples
    --------
    >>> Grid.cube(3.0, dim=2, bins=4).edges[0].tolist()
    [-3.0, -1.5, 0.0, 1.5, 3.0]
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    bins: int = 40
    forgetting: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.low) == len(self.high) <= 3:
            raise ValueError(f"grid has {len(self.low)} axes; a joint histogram has 1 to 3, use marginals for more.")
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise ValueError(f"grid runs from {self.low} to {self.high}; every low must be below its high.")
        check_whole(bins=self.bins)
        check_share(forgetting=self.forgetting)

    @classmethod
    def cube(cls, half_width: float, dim: int, bins: int = 40, forgetting: float | None = None) -> "Grid":
        """[−half_width, half_width] along every axis."""
        return cls((-half_width,) * dim, (half_width,) * dim, bins, forgetting)

    def init(self, dim: int, chains: int) -> np.ndarray:
        return np.zeros((self.bins + 2) ** dim, _dtype(self.forgetting))

    def add(self, counts: Array, positions: Array, keep: Array, weights: Array | None = None) -> Array:
        cell = jnp.zeros((), jnp.int32)
        for axis, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            cell = cell * (self.bins + 2) + _bins(positions[:, :, axis], low, high, self.bins)
        added = 1 if weights is None else jnp.broadcast_to(weights[:, None], cell.shape)
        return counts.at[jnp.where(keep, cell, counts.size)].add(added, mode="drop")

    @property
    def edges(self) -> tuple[np.ndarray, ...]:
        """Edges of the bins, bins + 1 per axis."""
        return tuple(np.linspace(low, high, self.bins + 1) for low, high in zip(self.low, self.high, strict=True))

    def histogram(self, counts: np.ndarray, effective: float | None = None) -> "Histogram":
        return Histogram(self.edges, counts.reshape((self.bins + 2,) * len(self.low)), effective)


@dataclass(frozen=True)
class Marginals:
    """A histogram of every coordinate on [low, high], pooled over chains or for each chain; it may forget.

    Attributes
    ----------
    low
        Lower end of the interval.
    high
        Upper end of the interval.
    bins
        Number of bins.
    per_chain
        Whether each chain has its own histograms; default: they are pooled.
    forgetting
        γ: a position of age k steps weighs (1 − γ)^k; by default all weigh the same.
    """

    low: float
    high: float
    bins: int = 20
    per_chain: bool = False
    forgetting: float | None = None

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"marginals run from {self.low} to {self.high}; low must be below high.")
        check_whole(bins=self.bins)
        check_share(forgetting=self.forgetting)

    def init(self, dim: int, chains: int) -> np.ndarray:
        return np.zeros((chains if self.per_chain else 1, dim, self.bins + 2), _dtype(self.forgetting))

    def add(self, counts: Array, positions: Array, keep: Array, weights: Array | None = None) -> Array:
        groups, _, dim, width = positions.shape
        first_cell = (self.bins + 2) * jnp.arange(dim, dtype=jnp.int32)[:, None]
        cell = _bins(positions, self.low, self.high, self.bins) + first_cell[None, None]
        if self.per_chain:
            group, lane = (jnp.arange(count, dtype=jnp.int32) for count in (groups, width))
            chain = group[:, None, None, None] * width + lane[None, None, None]
            cell = cell + chain * (dim * (self.bins + 2))
        cell = jnp.where(keep[:, :, None], cell, counts.size)
        added = 1 if weights is None else jnp.broadcast_to(weights[:, None, None], cell.shape)
        return counts.reshape(-1).at[cell].add(added, mode="drop").reshape(counts.shape)

    def histograms(self, counts: np.ndarray, effective: float | None = None) -> list[list["Histogram"]]:
        """For each chain (or for all together) a list of one histogram per coordinate."""
        edges = np.linspace(self.low, self.high, self.bins + 1)
        return [[Histogram((edges,), coordinate, effective) for coordinate in chain] for chain in counts]


@dataclass(frozen=True)
class Moments:
    """Count, sum and sum of products of positions about a point near them; NaN and infinite positions are left out."""

    def init(self, dim: int, chains: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.zeros((), np.int32), np.zeros(dim, np.float32), np.zeros((dim, dim), np.float32)

    def add(
        self, sums: tuple[Array, Array, Array], positions: Array, keep: Array, about: Array
    ) -> tuple[Array, Array, Array]:
        count, first, second = sums
        keep = keep & jnp.all(jnp.isfinite(positions), axis=2)
        kept = jnp.where(keep[:, :, None], positions - about[None, None, :, None], 0)
        return (
            count + jnp.sum(keep, dtype=jnp.int32),
            first + jnp.sum(kept, axis=(0, 1, 3), dtype=first.dtype),
            second + _products(kept).astype(second.dtype),
        )

    def mean_and_covariance(
        self, sums: tuple[np.ndarray, np.ndarray, np.ndarray], about: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Both are nan when nothing was counted."""
        count, first, second = sums
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            mean = first / count
            return mean + about, second / count - np.outer(mean, mean)


def _products(positions: Array) -> Array:
    """Σ x xᵀ over all axes but the dimensions'; for few dimensions as separate sums, too small for a matrix product."""
    dim = positions.shape[2]
    if dim > 8:
        return jnp.einsum("grdw,grew->de", positions, positions)
    sums = {(i, j): jnp.sum(positions[:, :, i] * positions[:, :, j]) for i in range(dim) for j in range(i, dim)}
    return jnp.stack([jnp.stack([sums[min(i, j), max(i, j)] for j in range(dim)]) for i in range(dim)])
