"""R̂(x) = Σ_p c_p Π_i cos(p_i u_i(x)) on a box, in up to three dimensions: conservative regression from sums alone.

Minimises Σ‖g − ∇R̂(θ)‖²/σ² + Σ_p c_p²/s_p, a Gaussian-process prior with spectrum s. By cos a cos b = ½[cos(a−b) +
cos(a+b)] the normal matrix is a look-up in S = Σ_k Π_i cos(m_i u_i(θ_k)), m_i up to twice the order. The state is S and
a right-hand side: constant memory, exact streaming, exponential forgetting, and priors scored without the data.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from onlooker.fit.box import Box
from onlooker.fit.waves import products, work
from onlooker.fit.waves import waves as waves_of

__all__ = ["CHUNK", "SETTINGS", "CosineSettings", "CosineSums"]

# Rows processed at a time: 16 384 rows of 191 waves take 25 MB.
CHUNK = 1 << 14


@dataclass(frozen=True)
class CosineSettings:
    """Constants of the fit by cosines.

    Attributes
    ----------
    orders
        Cosines per axis, by dimension: at most about 1300 coefficients, so that a normal matrix takes 14 MB.
    margin
        Margin of the box about the points, in their widths. Cosines have zero slope at the ends of the box, so the ends
        must lie where there are no data.
    lengths
        Length scales of the prior tried, in half-widths of the box: from the finest that cosines resolve in one
        dimension to longer than the box, in steps of about 1.7.
    scales
        Variances of the prior tried, in units of the gradients': the range extends beyond all useful values.
    kernels
        Prior kernels tried: for smooth rewards and for rewards with kinks.
    least_noise
        Lower bound on the noise, as a share of the gradients' variance: keeps the normal matrix positive in float64.
    coarse_share
        Share of an axis's cosines in the fit that shows what more of them would change.
    likely
        Number of priors whose evidence is computed with all cosines.
    apart_weights
        Weights in error bars of the squared change by more cosines, and of that by the prior of largest evidence.
    judged_by
        Number of rows at most whose residuals set the error bars.
    search_share
        Share of an axis's cosines used in the search over priors: in two dimensions a 64th of the work.
    finalists
        Number of priors that are scored again with all cosines.
    largest_exponent
        The inverse spectrum is capped at the exponential of this, far below the overflow of float64.
    alike
        Fits may share a prior if their centres, log spreads and boxes differ by less than this share of a width.
    begin_with
        Largest sample that sums are begun on, since it is copied: box and quadratic need no more.
    draw_cells
        Cells per axis for drawing from exp(βR̂), by dimension: at most 900 000 before any is divided.
    """

    orders: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({1: 96, 2: 36, 3: 11}))
    margin: float = 0.3
    lengths: tuple[float, ...] = (0.06, 0.1, 0.17, 0.3, 0.5, 0.8, 1.3)
    scales: tuple[float, ...] = tuple((10.0 ** np.arange(-5, 7)).tolist())
    kernels: tuple[str, ...] = ("squared exponential", "Matérn 5/2")
    least_noise: float = 1e-9
    coarse_share: float = 2 / 3
    likely: int = 3
    apart_weights: tuple[float, float] = (0.25, 1.0)
    judged_by: int = 1 << 18
    search_share: float = 0.5
    finalists: int = 6
    largest_exponent: float = 50.0
    alike: float = 0.2
    begin_with: int = 1 << 21
    draw_cells: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({1: 4096, 2: 384, 3: 96}))

    @property
    def priors(self) -> list[tuple[str, float, float]]:
        """Every kernel with every length and scale."""
        return list(itertools.product(self.kernels, self.lengths, self.scales))


SETTINGS = CosineSettings()


@dataclass
class CosineSums:
    """Everything the fit needs to know about the observations inside the box.

    Attributes
    ----------
    box
        The box.
    order
        Number of cosines per axis.
    waves
        S, of size 2·order − 1 per axis.
    towards
        Right-hand side Σ_k g·∇φ_p, one entry per coefficient.
    squares
        Σ‖g‖².
    count
        Weight of the observations.
    """

    box: Box
    order: int
    waves: np.ndarray = field(init=False)
    towards: np.ndarray = field(init=False)
    squares: float = 0.0
    count: float = 0.0

    def __post_init__(self) -> None:
        dim = len(self.box.low)
        self.waves = np.zeros((2 * self.order - 1,) * dim)
        self.towards = np.zeros((self.order,) * dim)

    def add(self, points: np.ndarray, gradients: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Add observations (n, dim) that lie in the box, with weights (n,); default: 1."""
        self.push(points, gradients, np.ones(len(points)) if weights is None else weights, also=True)

    def push(self, points: np.ndarray, gradients: np.ndarray, weights: np.ndarray, also: bool = False) -> None:
        """Add the right-hand side of observations, and the other sums ``also``."""
        numbers, dim = np.arange(self.order), points.shape[1]
        for first in range(0, len(points), CHUNK):
            angles = self.box.angles(points[first : first + CHUNK].astype(float))
            slopes = gradients[first : first + CHUNK].astype(float)
            weight = weights[first : first + CHUNK]
            count, rows = 2 * self.order - 1 if also else self.order, len(angles)
            waves = [waves_of(angles[:, axis], count, work(f"waves {axis}", 2, count, rows)) for axis in range(dim)]
            if also:
                weighted = np.multiply(waves[0][0], weight, out=work("weighted", count, rows))
                self.waves += products([weighted, *(cosine for cosine, _ in waves[1:])])
            for axis in range(dim):
                factors = [cosine[: self.order] for cosine, _ in waves]
                factors[axis] = work("weighted", self.order, rows)
                rates = -(numbers * self.box.rate[axis])[:, None]
                np.multiply(rates, waves[axis][1][: self.order], out=factors[axis])
                factors[axis] *= slopes[:, axis]
                factors[axis] *= weight
                self.towards += products(factors)
            self.squares += float(weight @ (slopes**2).sum(axis=1))
        self.count += float(weights.sum())

    def forget(self, share: float) -> None:
        """Multiply the weight of everything added so far by 1 − share."""
        for name in ("waves", "towards", "squares", "count"):
            setattr(self, name, getattr(self, name) * (1 - share))

    def truncated(self, order: int) -> "CosineSums":
        """The same observations with fewer cosines."""
        fewer = CosineSums(self.box, order, self.squares, self.count)
        fewer.waves = self.waves[(slice(2 * order - 1),) * self.waves.ndim]
        fewer.towards = self.towards[(slice(order),) * self.towards.ndim]
        return fewer

    def joined(self, other: "CosineSums") -> "CosineSums":
        """The sums over the observations of both."""
        both = CosineSums(self.box, self.order, self.squares + other.squares, self.count + other.count)
        both.waves, both.towards = self.waves + other.waves, self.towards + other.towards
        return both

    def normal_matrix(self) -> np.ndarray:
        """Σ_k ∇φ_p·∇φ_q without the constant, (coefficients, coefficients)."""
        numbers = np.arange(self.order)
        apart, together = np.abs(numbers[:, None] - numbers), numbers[:, None] + numbers
        dim = self.waves.ndim
        size = self.order**dim
        total = np.zeros((size, size))
        for sloped in range(dim):
            array = self.waves
            for axis in range(dim):
                # Each axis is taken from the front, and its pairs (p, q) are appended at the back.
                sign = -1 if axis == sloped else 1
                pair = 0.5 * (array[apart] + sign * array[together])
                if axis == sloped:
                    factor = self.box.rate[axis] ** 2 * numbers[:, None] * numbers
                    pair = pair * factor.reshape(factor.shape + (1,) * (pair.ndim - 2))
                array = np.moveaxis(pair, (0, 1), (-2, -1))
            rows = np.moveaxis(array, range(0, 2 * dim, 2), range(dim))
            total += rows.reshape(size, size)
        return total[1:, 1:]
