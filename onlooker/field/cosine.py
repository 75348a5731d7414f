"""R̂(x) = Σ_p c_p Π_i cos(p_i u_i(x)) on a box, for up to three dimensions: conservative regression by sums alone.

Minimises Σ‖g − ∇R̂(θ)‖²/σ² + Σ_p c_p²/s_p, a Gaussian-process prior with spectrum s. By cos a cos b = ½[cos(a−b) +
cos(a+b)] the normal matrix is a look-up in S = Σ_k Π_i cos(m_i u_i(θ_k)), m_i up to twice the order. So the whole state
is S and a right-hand side: constant memory, exact streaming, exponential forgetting, and hyper-parameters scored again
without the data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from onlooker.field.disagreement import disagreement

__all__ = ["Box", "CosineFit", "CosineSums", "box_of", "fit_cosines", "refit_cosines"]

# Cosines per axis, by dimension: about 1300 coefficients at the most.
ORDERS = {1: 96, 2: 36, 3: 11}
CHUNK = 1 << 14
# Below this a call of NumPy costs more than the numbers it computes.
FEW_ANGLES = 512
# The share of points that a box leaves out at either end of an axis.
LEFT_OUT = 0.0005
# What the prior's length (in units of the box's half-width) and variance (in those of the gradients) may be.
LENGTHS = (0.06, 0.1, 0.17, 0.3, 0.5, 0.8, 1.3)
SCALES = 10.0 ** np.arange(-5, 7)
PRIORS = [
    (kernel, length, scale)
    for kernel in ("squared exponential", "Matérn 5/2")
    for length in LENGTHS
    for scale in SCALES.tolist()
]
# Gradients are never quite free of noise: this share of them keeps the normal matrix positive.
LEAST_NOISE = 1e-9
# The search over priors uses this share of the cosines of an axis, and hands so many to the full fit.
SEARCH_SHARE = 0.5
FINALISTS = 6
LARGEST_EXPONENT = 50.0


@dataclass(frozen=True)
class Box:
    """The box that cosines live on."""

    low: np.ndarray
    high: np.ndarray

    @property
    def rate(self) -> np.ndarray:
        """du/dx, with u from 0 to π across the box."""
        return np.pi / (self.high - self.low)

    def angles(self, points: np.ndarray) -> np.ndarray:
        return (points - self.low) * self.rate

    def holds(self, points: np.ndarray) -> np.ndarray:
        return np.all((points >= self.low) & (points <= self.high), axis=1)


def box_of(points: np.ndarray, margin: float) -> Box:
    """The box of all but a few of the points (n, dim) at either end of an axis, and a margin in its widths."""
    low, high = np.stack([np.quantile(column, [LEFT_OUT, 1 - LEFT_OUT]) for column in points.T], axis=1)
    # A coordinate that hardly ever moves.
    low, high = np.where(low < high, low, points.min(axis=0)), np.where(low < high, high, points.max(axis=0))
    return Box(low - margin * (high - low), high + margin * (high - low))


def _waves(angle: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """cos(mu) and sin(mu) for m < count, (count, n) each: by the three-term recurrence, of few angles by doubling m."""
    cosine, sine = np.empty((2, count, len(angle)))
    cosine[0], sine[0] = 1, 0
    known = 1
    if len(angle) >= FEW_ANGLES and count > 1:
        cosine[1], sine[1] = np.cos(angle), np.sin(angle)
        for wave in (cosine, sine):
            for number in range(2, count):
                wave[number] = 2 * cosine[1] * wave[number - 1] - wave[number - 2]
        return cosine, sine
    while known < count:
        new, old = slice(known, min(2 * known, count)), slice(min(known, count - known))
        turn_cosine, turn_sine = np.cos(known * angle), np.sin(known * angle)
        cosine[new] = cosine[old] * turn_cosine - sine[old] * turn_sine
        sine[new] = sine[old] * turn_cosine + cosine[old] * turn_sine
        known *= 2
    return cosine, sine


def _products(factors: Sequence[np.ndarray]) -> np.ndarray:
    """Σ_k Π_i factor_i[p_i, k], over all combinations of p."""
    *front, last = factors
    joined = reduce(lambda one, other: (one[:, None] * other).reshape(-1, other.shape[-1]), front) if front else None
    total = last.sum(axis=-1) if joined is None else joined @ last.T
    return total.reshape([len(factor) for factor in factors])


@dataclass
class CosineSums:
    """Everything the fit needs to know of the observations inside the box.

    Attributes
    ----------
    box, order
        Where, and how many cosines per axis.
    waves
        S, (2·order − 1) per axis.
    towards
        Σ_k g·∇φ_p, one per coefficient.
    squares
        Σ‖g‖².
    count
        How many observations, forgotten ones counted by their weight.
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
        """Add observations (n, dim) that lie in the box, with weights (n,) if they do not all count in full."""
        numbers, dim = np.arange(self.order), points.shape[1]
        weights = np.ones(len(points)) if weights is None else weights
        for first in range(0, len(points), CHUNK):
            angles = self.box.angles(points[first : first + CHUNK].astype(float))
            some = gradients[first : first + CHUNK].astype(float)
            weight = weights[first : first + CHUNK]
            waves = [_waves(angles[:, axis], 2 * self.order - 1) for axis in range(dim)]
            self.waves += _products([cosine * (weight if axis == 0 else 1) for axis, (cosine, _) in enumerate(waves)])
            for axis in range(dim):
                factors = [cosine[: self.order] for cosine, _ in waves]
                slope = -(numbers * self.box.rate[axis])[:, None] * waves[axis][1][: self.order]
                factors[axis] = slope * some[:, axis] * weight
                self.towards += _products(factors)
            self.squares += float(weight @ (some**2).sum(axis=1))
        self.count += float(weights.sum())

    def forget(self, share: float) -> None:
        """Weigh all that was added so far by 1 − share."""
        for name in ("waves", "towards", "squares", "count"):
            setattr(self, name, getattr(self, name) * (1 - share))

    def truncated(self, order: int) -> "CosineSums":
        """The same observations with fewer cosines."""
        fewer = CosineSums(self.box, order, self.squares, self.count)
        fewer.waves = self.waves[(slice(2 * order - 1),) * self.waves.ndim]
        fewer.towards = self.towards[(slice(order),) * self.towards.ndim]
        return fewer

    def joined(self, other: "CosineSums") -> "CosineSums":
        """Of the observations behind both."""
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
                # Axes come off the front, pairs (p, q) go to the back.
                sign = -1 if axis == sloped else 1
                pair = 0.5 * (array[apart] + sign * array[together])
                if axis == sloped:
                    factor = self.box.rate[axis] ** 2 * numbers[:, None] * numbers
                    pair = pair * factor.reshape(factor.shape + (1,) * (pair.ndim - 2))
                array = np.moveaxis(pair, (0, 1), (-2, -1))
            rows = np.moveaxis(array, range(0, 2 * dim, 2), range(dim))
            total += rows.reshape(size, size)
        return total[1:, 1:]


@dataclass(frozen=True)
class CosineFit:
    """Fitted coefficients and their covariance factor."""

    box: Box
    coefficients: np.ndarray
    factor: tuple[np.ndarray, bool]
    noise: float
    held_out_error: float
    length: float
    scale: float
    kernel: str
    # By how much error bars were widened; the noise has it.
    inflation: float = 1.0

    def features(self, points: np.ndarray) -> np.ndarray:
        """φ_p at points (n, dim), without the constant: (n, coefficients)."""
        order = self.coefficients.shape[0]
        waves = [_waves(angle, order)[0] for angle in self.box.angles(points).T]
        return reduce(lambda one, other: (one[:, None] * other).reshape(-1, other.shape[-1]), waves)[1:].T

    def value(self, points: np.ndarray) -> np.ndarray:
        """At points (n, dim), without the constant."""
        order, found = self.coefficients.shape[0], [np.zeros(0)]
        for first in range(0, len(points), CHUNK):
            waves = [_waves(angle, order)[0] for angle in self.box.angles(points[first : first + CHUNK]).T]
            found.append(self._combined(waves))
        return np.concatenate(found)

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """At points (n, dim) in the box."""
        order, found = self.coefficients.shape[0], [np.zeros((0, points.shape[1]))]
        for first in range(0, len(points), CHUNK):
            waves = [_waves(angle, order) for angle in self.box.angles(points[first : first + CHUNK]).T]
            slopes = []
            for axis, rate in enumerate(self.box.rate):
                factors = [cosine for cosine, _ in waves]
                factors[axis] = -(np.arange(order) * rate)[:, None] * waves[axis][1]
                slopes.append(self._combined(factors))
            found.append(np.stack(slopes, axis=1))
        return np.concatenate(found)

    def without(self, sums: CosineSums) -> "CosineFit":
        """The fit to all observations but those behind the sums, under the same prior; its error bars are left."""
        upper = np.triu(self.factor[0])
        matrix, known = upper.T @ upper, self.coefficients.reshape(-1)[1:]
        towards = matrix @ known - sums.towards.reshape(-1)[1:]
        solved = cho_solve(cho_factor(matrix - sums.normal_matrix()), towards)
        return replace(self, coefficients=np.concatenate([[0.0], solved]).reshape(self.coefficients.shape))

    def _combined(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        """Σ_p c_p Π_i wave_i[p_i], (n,)."""
        order = self.coefficients.shape[0]
        # One axis after the other: no product of waves is ever as large as the coefficients.
        total = np.tensordot(waves[0], self.coefficients, (0, 0)).T
        for wave in reversed(waves[1:]):
            total = (total * wave.reshape(order, *(1,) * (total.ndim - 2), -1)).sum(axis=0)
        return total

    def error(self, points: np.ndarray, about: np.ndarray) -> np.ndarray:
        """Standard error of R̂(x) − its mean over the points ``about``, given the basis."""
        middle = np.mean(self.features(about), axis=0)
        found = []
        for first in range(0, len(points), CHUNK):
            away = self.features(points[first : first + CHUNK]) - middle
            found.append(np.sqrt(self.noise * np.einsum("np,pn->n", away, cho_solve(self.factor, away.T))))
        return np.concatenate([np.zeros(0), *found])


def _penalty(box: Box, order: int, length: float, kernel: str) -> np.ndarray:
    """1/s_p: the inverse spectrum at each cosine's frequency, in units of the box's half-width, of total variance 1."""
    dim = len(box.low)
    axes = np.meshgrid(*[np.arange(order) * np.pi / 2] * dim, indexing="ij")
    squared = length**2 * np.sum([axis**2 for axis in axes], axis=0).reshape(-1)[1:]
    exponent = squared / 2 if kernel == "squared exponential" else (2.5 + dim / 2) * np.log1p(squared / 5)
    return np.exp(np.minimum(exponent, LARGEST_EXPONENT)) * np.exp(-exponent).sum()


def fit_cosines(sums: CosineSums, held: CosineSums, about: np.ndarray) -> CosineFit:
    """Fit, with the prior that predicts held-out gradients best or is as good and likelier; then with all of the data.

    Priors are tried with fewer cosines first, then the best few with all of them. Error bars are widened when the two
    parts of the data disagree by more than they allow at the points ``about`` (n, dim).
    """
    fewer = max(2, int(sums.order * SEARCH_SHARE))
    ranked = _rank(sums.truncated(fewer), held.truncated(fewer), PRIORS)
    best, *_ = _rank(sums, held, [one.prior for one in ranked[:FINALISTS]])
    halves = [(part.normal_matrix(), part.towards.reshape(-1)[1:]) for part in (sums, held)]
    fit, precision = _solve(sums, held, halves[0][0] + halves[1][0], best.prior, best.error)
    features = fit.features(about)
    inflation = disagreement(halves, precision, features - features.mean(axis=0), fit.noise)
    return replace(fit, noise=fit.noise * inflation**2, inflation=inflation)


def refit_cosines(sums: CosineSums, held: CosineSums, like: CosineFit, units: float = 1.0) -> CosineFit:
    """Fit with another's prior, widening and level of noise, times ``units`` squared: a tenth of the time."""
    prior = (like.kernel, like.length, like.scale)
    fit, _ = _solve(sums, held, sums.joined(held).normal_matrix(), prior, units**2 * like.held_out_error)
    return replace(fit, noise=units**2 * like.noise, inflation=like.inflation)


def _solve(
    sums: CosineSums, held: CosineSums, matrix: np.ndarray, prior: tuple[str, float, float], error: float
) -> tuple[CosineFit, np.ndarray]:
    """The fit to all of the data under a prior that leaves such a held-out error, and the prior's precision."""
    kernel, length, scale = prior
    precision = _noise(sums) / scale * _penalty(sums.box, sums.order, length, kernel)
    precision += LEAST_NOISE * np.trace(matrix) / len(matrix)
    factor = cho_factor(matrix + np.diag(precision))
    coefficients = np.concatenate([[0.0], cho_solve(factor, (sums.towards + held.towards).reshape(-1)[1:])])
    dim = sums.waves.ndim
    shaped = coefficients.reshape((sums.order,) * dim)
    return CosineFit(sums.box, shaped, factor, error / dim, error, length, scale, kernel), precision


def _noise(sums: CosineSums) -> float:
    return max(sums.squares / sums.count / sums.waves.ndim, LEAST_NOISE)


class _Tried(NamedTuple):
    """A prior with the held-out error it leads to, its evidence and its coefficients."""

    error: float
    evidence: float
    prior: tuple[str, float, float]
    coefficients: np.ndarray


def _rank(sums: CosineSums, held: CosineSums, priors: Sequence[tuple[str, float, float]]) -> list[_Tried]:
    """Priors, the best first: by held-out error, those within its chance by evidence.

    The difference of two held-out errors has the standard error 2σ(δᵀHδ)^½/n, with δ the difference of coefficients and
    H the held-out normal matrix. Priors within one of the best are told apart by their marginal likelihood on the rows
    learnt from, which is far less noisy, but knows nothing of new agents.
    """
    matrix, held_matrix = sums.normal_matrix(), held.normal_matrix()
    towards = sums.towards.reshape(-1)[1:]
    numbers = sums.count * sums.waves.ndim
    floor = LEAST_NOISE * np.trace(matrix) / len(matrix)
    found = []
    for prior in priors:
        kernel, length, scale = prior
        precision = _noise(sums) / scale * _penalty(sums.box, sums.order, length, kernel) + floor
        factor = cho_factor(matrix + np.diag(precision), overwrite_a=True)
        coefficients = cho_solve(factor, towards)
        missed = max(sums.squares - float(towards @ coefficients), LEAST_NOISE * sums.squares) + 1e-300
        volume = 2 * np.log(np.diag(factor[0])).sum() - np.log(precision).sum()
        evidence = -0.5 * float(volume + numbers * np.log(missed / numbers))
        found.append(_Tried(_error(coefficients, held_matrix, held), evidence, prior, coefficients))
    best = min(found, key=lambda one: one.error)
    noise = best.error / sums.waves.ndim

    def by_chance(one: _Tried) -> bool:
        apart = one.coefficients - best.coefficients
        return one.error - best.error <= 2 * np.sqrt(noise * max(float(apart @ held_matrix @ apart), 0)) / held.count

    return sorted(found, key=lambda one: (0, -one.evidence) if by_chance(one) else (1, one.error))


def _error(coefficients: np.ndarray, matrix: np.ndarray, sums: CosineSums) -> float:
    """Mean squared error of the gradient on the observations behind sums and their normal matrix."""
    gained = coefficients @ matrix @ coefficients - 2 * sums.towards.reshape(-1)[1:] @ coefficients
    return max(float(gained + sums.squares), 0.0) / sums.count
