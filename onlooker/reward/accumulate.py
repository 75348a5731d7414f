"""Running sums over positions, instead of the positions: a grid, marginals, moments.

Each accumulator is three pure functions of arrays: ``init`` makes zeros, ``add`` takes positions of shape
(groups, rows, dim, width) with the same-shaped ``keep`` (less dim) of those that count, and run.py sums what comes
back in 64 bits, so that no count stops growing at 2²⁴ or overflows at 2³¹.

A grid or marginals with a forgetting rate γ weigh a position of age k steps by (1 − γ)^k: what they count is the last
1/γ steps or so, and R̂ read from them follows a reward that changes.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.check import check_share, check_whole

__all__ = ["Grid", "Histogram", "Marginals", "Moments", "accumulate", "effective_count", "weight_left"]


def weight_left(forgetting: float | None, steps: Any) -> Any:
    """(1 − γ)^steps, for numbers or arrays; 1 without forgetting."""
    if forgetting is None:
        return np.ones_like(steps) if isinstance(steps, np.ndarray) else 1
    exponent = float(np.log1p(-forgetting)) * steps
    return jnp.exp(exponent) if isinstance(exponent, Array) else np.exp(exponent)


def effective_count(forgetting: float | None, count: float, every: int = 1) -> float:
    """(Σw)²/Σw² of so many weights 1, q, q², … with q = (1 − γ)^every: how many equal ones they are worth.

    Examples
    --------
    >>> round(effective_count(0.01, 1e6), 3)  # (2 − γ)/γ
    199.0
    """
    if forgetting is None or count == 0:
        return float(count)
    keep = np.exp(every * np.log1p(-forgetting))
    last = keep**count
    return float((1 - last) * (1 + keep) / ((1 + last) * (1 - keep)))


def accumulate(
    accumulator: "Grid | Marginals", counts: Array, positions: Array, keep: Array, ages: Array, steps: Array
) -> Array:
    """Counts after so many more steps, with the positions whose ages (rows,) are given in steps."""
    rate = accumulator.forgetting
    if rate is None:
        return accumulator.add(counts, positions, keep)
    # Added up by themselves first: a weight may be too small to change the total, a block's is not.
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
    low, high
        Corners of the box, one number per axis.
    bins
        How many per axis.
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
            raise ValueError(f"grid has {len(self.low)} axes; a joint histogram needs 1 to 3, use marginals above.")
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
        one = 1 if weights is None else jnp.broadcast_to(weights[:, None], cell.shape)
        return counts.at[jnp.where(keep, cell, counts.size)].add(one, mode="drop")

    @property
    def edges(self) -> tuple[np.ndarray, ...]:
        """Of the bins, bins + 1 per axis."""
        return tuple(np.linspace(low, high, self.bins + 1) for low, high in zip(self.low, self.high, strict=True))

    def histogram(self, counts: np.ndarray, effective: float | None = None) -> "Histogram":
        return Histogram(self.edges, counts.reshape((self.bins + 2,) * len(self.low)), effective)


@dataclass(frozen=True)
class Marginals:
    """A histogram of every coordinate on [low, high], pooled or for each chain by itself; it may forget.

    Attributes
    ----------
    low, high, bins
        The interval, and how many bins it has.
    per_chain
        For each chain by itself, or pooled.
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
        cell = _bins(positions, self.low, self.high, self.bins) + (self.bins + 2) * jnp.arange(dim)[:, None]
        if self.per_chain:
            chain = jnp.arange(groups)[:, None, None, None] * width + jnp.arange(width)
            cell = cell + chain * (dim * (self.bins + 2))
        cell = jnp.where(keep[:, :, None], cell, counts.size)
        one = 1 if weights is None else jnp.broadcast_to(weights[:, None, None], cell.shape)
        return counts.reshape(-1).at[cell].add(one, mode="drop").reshape(counts.shape)

    def histograms(self, counts: np.ndarray, effective: float | None = None) -> list[list["Histogram"]]:
        """One list per chain (or one for all) of one histogram per coordinate."""
        edges = np.linspace(self.low, self.high, self.bins + 1)
        return [[Histogram((edges,), coordinate, effective) for coordinate in chain] for chain in counts]


@dataclass(frozen=True)
class Moments:
    """Count, sum and sum of products of positions about a place near them; lost positions are left out."""

    def init(self, dim: int, chains: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.zeros((), np.int32), np.zeros(dim, np.float32), np.zeros((dim, dim), np.float32)

    def add(
        self, sums: tuple[Array, Array, Array], positions: Array, keep: Array, about: Array
    ) -> tuple[Array, Array, Array]:
        count, first, second = sums
        keep = keep & jnp.all(jnp.isfinite(positions), axis=2)
        kept = jnp.where(keep[:, :, None], positions - about[:, None], 0)
        return (
            count + jnp.sum(keep, dtype=jnp.int32),
            first + jnp.sum(kept, axis=(0, 1, 3), dtype=first.dtype),
            second + _products(kept).astype(second.dtype),
        )

    def mean_and_covariance(
        self, sums: tuple[np.ndarray, np.ndarray, np.ndarray], about: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Both nan when nothing was counted."""
        count, first, second = sums
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            mean = first / count
            return mean + about, second / count - np.outer(mean, mean)


def _products(positions: Array) -> Array:
    """Σ x xᵀ over all but the axis of dimensions; sums of products when that axis is too short to be a matrix's."""
    dim = positions.shape[2]
    if dim > 8:
        return jnp.einsum("grdw,grew->de", positions, positions)
    sums = {(i, j): jnp.sum(positions[:, :, i] * positions[:, :, j]) for i in range(dim) for j in range(i, dim)}
    return jnp.stack([jnp.stack([sums[min(i, j), max(i, j)] for j in range(dim)]) for i in range(dim)])


@dataclass(frozen=True)
class Histogram:
    """Counts on a grid whose first and last bin of each axis are overflow bins.

    Attributes
    ----------
    edges
        One array of bins + 1 edges per axis.
    counts
        Of shape (bins + 2, …); weights may be fractions.
    effective
        How many equally weighted positions the counts are worth, (Σw)²/Σw²; by default all of them. Positions of one
        chain are correlated besides.

    Examples
    --------
    >>> edges = (np.array([0.0, 1.0, 2.0]),)
    >>> seen = Histogram.of(np.array([[0.2], [0.4], [1.5], [7.0]]), edges)
    >>> seen.counts.tolist()  # below, two bins, above
    [0.0, 2.0, 1.0, 1.0]
    >>> seen.probabilities.tolist()
    [0.0, 0.5, 0.25, 0.25]
    """

    edges: tuple[np.ndarray, ...]
    counts: np.ndarray
    effective: float | None = None

    def __post_init__(self) -> None:
        if self.effective is None:
            object.__setattr__(self, "effective", float(self.counts.sum()))

    @classmethod
    def of(cls, samples: np.ndarray, edges: tuple[np.ndarray, ...]) -> "Histogram":
        """Of samples (…, dim) on given edges."""
        flat = samples.reshape(-1, len(edges))
        counts = np.zeros([len(axis) + 1 for axis in edges])
        np.add.at(counts, tuple(np.digitize(flat[:, axis], edge) for axis, edge in enumerate(edges)), 1)
        return cls(edges, counts)

    @property
    def probabilities(self) -> np.ndarray:
        """The counts over their sum, overflow bins included."""
        total = self.counts.sum()
        if not total > 0:
            raise ValueError("the histogram is empty: no position has been counted yet; run for longer.")
        return self.counts / total

    @property
    def inside(self) -> np.ndarray:
        """The counts without the overflow bins."""
        return self.counts[(slice(1, -1),) * self.counts.ndim]

    @property
    def centres(self) -> tuple[np.ndarray, ...]:
        """Of the bins, per axis, without the overflow bins."""
        return tuple((edges[1:] + edges[:-1]) / 2 for edges in self.edges)

    def marginal(self, axis: int) -> "Histogram":
        """Of one axis alone."""
        others = tuple(other for other in range(self.counts.ndim) if other != axis)
        return Histogram((self.edges[axis],), self.counts.sum(axis=others), self.effective)

    def coarsen(self, factor: int) -> "Histogram":
        """Merge every ``factor`` bins, leaving the overflow bins."""
        counts = self.counts
        for axis, edges in enumerate(self.edges):
            bins = len(edges) - 1
            if bins % factor:
                raise ValueError(f"{bins} bins cannot be merged {factor} at a time.")
            starts = np.concatenate([[0], np.arange(1, bins + 1, factor), [bins + 1]])
            counts = np.add.reduceat(counts, starts, axis=axis)
        return Histogram(tuple(edges[::factor] for edges in self.edges), counts, self.effective)
