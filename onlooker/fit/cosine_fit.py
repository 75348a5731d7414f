"""The fit of cosines to their sums: a prior chosen, coefficients and their covariance.

Minimises Σ‖g − ∇R̂(θ)‖²/σ² + Σ_p c_p²/s_p, a Gaussian-process prior with spectrum s, from `cosine_sums` alone: priors
are scored without the data. Error bars are those of `error_bars`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lapack

from onlooker.fit.box import Box
from onlooker.fit.cosine_sums import CHUNK, SETTINGS, CosineSums
from onlooker.fit.error_bars import clustered, sandwich, widened
from onlooker.fit.waves import paired
from onlooker.fit.waves import waves as waves_of

__all__ = ["CosineFit", "fit_cosines", "refit_cosines"]


@dataclass(frozen=True)
class CosineFit:
    """Fitted coefficients and their covariance.

    Attributes
    ----------
    box
        The box.
    coefficients
        c, with ``order`` entries per axis; that of the constant is zero.
    factor
        Cholesky factor of the penalised normal matrix.
    noise
        Variance σ² of the gradients' noise.
    held_out_error
        Mean squared error of the gradient on the held-out observations.
    length
        Length scale of the prior.
    scale
        Variance of the prior.
    kernel
        Name of the prior's kernel.
    inflation
        Factor by which error bars were widened in version 0.1.
    count
        Weight of the observations.
    apart
        Coefficients (2, …) less those with fewer cosines, and less those of the prior of largest evidence, times the
        roots of their weights in error bars; ``None`` if not known.
    scores
        What the fit leaves of buckets of agents (coefficients, buckets), see `error_bars`; ``None`` if not known.
    smoothed
        max(σ², τ²)P (coefficients,); ``None`` if not known.
    """

    box: Box
    coefficients: np.ndarray
    factor: tuple[np.ndarray, bool]
    noise: float
    held_out_error: float
    length: float
    scale: float
    kernel: str
    inflation: float = 1.0
    count: float = 0.0
    apart: np.ndarray | None = None
    scores: np.ndarray | None = None
    smoothed: np.ndarray | None = None

    def features(self, points: np.ndarray) -> np.ndarray:
        """φ_p at points (n, dim), without the constant: (n, coefficients)."""
        order = self.coefficients.shape[0]
        waves = [waves_of(angle, order)[0] for angle in self.box.angles(points).T]
        return reduce(paired, waves)[1:].T

    def value(self, points: np.ndarray) -> np.ndarray:
        """R̂ at points (n, dim), up to a constant."""
        order, parts = self.coefficients.shape[0], [np.zeros(0)]
        for first in range(0, len(points), CHUNK):
            waves = [waves_of(angle, order)[0] for angle in self.box.angles(points[first : first + CHUNK]).T]
            parts.append(self._combined(waves))
        return np.concatenate(parts)

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """∇R̂ at points (n, dim) in the box."""
        order, parts = self.coefficients.shape[0], [np.zeros((0, points.shape[1]))]
        for first in range(0, len(points), CHUNK):
            waves = [waves_of(angle, order) for angle in self.box.angles(points[first : first + CHUNK]).T]
            slopes = []
            for axis, rate in enumerate(self.box.rate):
                factors = [cosine for cosine, _ in waves]
                factors[axis] = -(np.arange(order) * rate)[:, None] * waves[axis][1]
                slopes.append(self._combined(factors))
            parts.append(np.stack(slopes, axis=1))
        return np.concatenate(parts)

    def without(self, sums: CosineSums) -> "CosineFit":
        """The fit to all observations except those of ``sums``, with the same prior; error bars are unchanged."""
        upper = np.triu(self.factor[0])
        matrix, known = upper.T @ upper, self.coefficients.reshape(-1)[1:]
        towards = matrix @ known - sums.towards.reshape(-1)[1:]
        solved = cho_solve(cho_factor(matrix - sums.normal_matrix()), towards)
        return replace(self, coefficients=np.concatenate([[0.0], solved]).reshape(self.coefficients.shape))

    def _combined(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        """Σ_p c_p Π_i wave_i[p_i], (n,)."""
        order = self.coefficients.shape[0]
        # One axis at a time: no product of waves is ever as large as the coefficients.
        total = np.tensordot(waves[0], self.coefficients, (0, 0)).T
        for wave in reversed(waves[1:]):
            total = (total * wave.reshape(order, *(1,) * (total.ndim - 2), -1)).sum(axis=0)
        return total

    def error(self, points: np.ndarray, about: np.ndarray) -> np.ndarray:
        """Standard error of R̂(x) minus its mean over the points ``about``, see `onlooker.fit.error_bars`."""
        middle = (known := self.features(about)).mean(axis=0)
        apart = np.zeros((0, len(middle))) if self.apart is None else self.apart
        usual = [float(np.mean(((known - middle) @ part) ** 2)) for part in apart]
        parts = []
        for first in range(0, len(points), CHUNK):
            away = self.features(points[first : first + CHUNK]) - middle
            solved = cho_solve(self.factor, away.T)
            variance = self.noise * np.einsum("np,pn->n", away, solved)
            if self.scores is not None and self.smoothed is not None:
                seen = ((self.scores.T @ solved) ** 2).sum(axis=0) + self.smoothed @ solved**2
                variance = np.maximum(variance, seen)
            parts.append(np.sqrt(widened(variance, [away @ part for part in apart], usual)))
        return np.concatenate([np.zeros(0), *parts])

    def covariance(self, points: np.ndarray, about: np.ndarray) -> np.ndarray:
        """Covariance (n, n) of R̂ minus its mean over the points ``about``; its diagonal is nearly `error` squared."""
        middle = self.features(about).mean(axis=0)
        away = self.features(points) - middle
        solved = cho_solve(self.factor, away.T)
        total = self.noise * (away @ solved)
        if self.scores is not None and self.smoothed is not None:
            seen = self.scores.T @ solved
            total += seen.T @ seen + solved.T @ (self.smoothed[:, None] * solved)
        if self.apart is not None:
            total += 0.5 * (away @ self.apart.T) @ (away @ self.apart.T).T
        return total

    def judged(
        self, points: np.ndarray, gradients: np.ndarray, weights: np.ndarray, agents: np.ndarray | None, seed: int
    ) -> "CosineFit":
        """The fit with error bars that know what it leaves of rows (n, dim) in the box, with weights (n,)."""
        buckets = clustered(len(points), agents, seed, SETTINGS.judged_by)
        scores, sizes = [], []
        for rows in buckets.parts():
            sums = CosineSums(self.box, self.coefficients.shape[0])
            sums.push(points[rows], gradients[rows] - self.gradient(points[rows]), weights[rows])
            scores.append(sums.towards.reshape(-1)[1:])
            sizes.append(weights[rows].sum())
        share = sum(sizes) / max(self.count, sum(sizes))
        return replace(self, scores=sandwich(np.array(scores).T, np.array(sizes), share))


def _penalty(box: Box, order: int, length: float, kernel: str) -> np.ndarray:
    """1/s_p at each cosine's frequency, for a length in half-widths of the box and total variance 1."""
    dim = len(box.low)
    axes = np.meshgrid(*[np.arange(order) * np.pi / 2] * dim, indexing="ij")
    squared = length**2 * np.sum([axis**2 for axis in axes], axis=0).reshape(-1)[1:]
    exponent = squared / 2 if kernel == "squared exponential" else (2.5 + dim / 2) * np.log1p(squared / 5)
    return np.exp(np.minimum(exponent, SETTINGS.largest_exponent)) * np.exp(-exponent).sum()


def fit_cosines(sums: CosineSums, held: CosineSums, few: bool = False) -> CosineFit:
    """Choose the prior, then fit to all of the data.

    It is chosen by held-out gradients, see `_rank`, or, if held-out rows are too ``few`` to choose by, by its evidence.
    Priors are scored with fewer cosines first, then the best of them with all. The fit is compared with that of the
    prior that the other rule chooses, and with the one that has fewer cosines.
    """
    fewer = max(2, int(sums.order * SETTINGS.search_share))
    ranked = _rank(sums.truncated(fewer), held.truncated(fewer), SETTINGS.priors)
    best, *_ = _rank(sums, held, [candidate.prior for candidate in ranked[: SETTINGS.finalists]])
    both, matrix = sums.joined(held), sums.normal_matrix() + held.normal_matrix()
    likely = _likeliest(both, matrix)
    prior, other, error = best.prior, likely, best.error
    if few and likely != best.prior:
        prior, other, error = likely, best.prior, _rank(sums, held, [likely])[0].error
    solved = _solved(sums, held, matrix, prior)
    rival = solved if other == prior else _solved(sums, held, matrix, other)
    coarse = _coarse(sums, held, prior)
    apart = np.stack([solved.coefficients - coarse, solved.coefficients - rival.coefficients])
    weights = np.sqrt(SETTINGS.apart_weights)[:, None]
    return replace(_fitted(sums, held, prior, error, solved), apart=weights * apart)


def refit_cosines(sums: CosineSums, held: CosineSums, like: CosineFit, units: float = 1.0) -> CosineFit:
    """Fit with the prior and noise (times ``units`` squared) of another fit, in a tenth of the time.

    Its difference from other fits is that of the other fit, in these units.
    """
    prior = (like.kernel, like.length, like.scale)
    solved = _solved(sums, held, sums.joined(held).normal_matrix(), prior)
    fit = _fitted(sums, held, prior, units**2 * like.held_out_error, solved)
    return replace(fit, apart=None if like.apart is None else units * like.apart)


class _Solved(NamedTuple):
    """Coefficients under a prior, its precision, and the factor of the normal matrix with it."""

    coefficients: np.ndarray
    precision: np.ndarray
    factor: tuple[np.ndarray, bool]


def _solved(sums: CosineSums, held: CosineSums, matrix: np.ndarray, prior: tuple[str, float, float]) -> _Solved:
    """The solution of all of the data, whose normal matrix is given."""
    precision = _precision(sums, matrix, prior)
    factor = cho_factor(matrix + np.diag(precision))
    return _Solved(cho_solve(factor, (sums.towards + held.towards).reshape(-1)[1:]), precision, factor)


def _fitted(
    sums: CosineSums, held: CosineSums, prior: tuple[str, float, float], error: float, solved: _Solved
) -> CosineFit:
    """The fit with this solution and held-out error."""
    kernel, length, scale = prior
    found, precision, factor = solved
    noise = error / sums.waves.ndim
    shaped = np.concatenate([[0.0], found]).reshape(sums.towards.shape)
    inverse = lapack.dpotri(factor[0], lower=factor[1])[0]
    known = max(len(found) - float(np.diag(inverse) @ precision), 1e-9)
    smoothed = max(noise, float(precision @ found**2) / known) * precision
    count = sums.count + held.count
    return CosineFit(sums.box, shaped, factor, noise, error, length, scale, kernel, count=count, smoothed=smoothed)


def _coarse(sums: CosineSums, held: CosineSums, prior: tuple[str, float, float]) -> np.ndarray:
    """The coefficients with fewer cosines, the others zero."""
    order, shape = max(2, int(sums.order * SETTINGS.coarse_share)), sums.towards.shape
    some = sums.truncated(order), held.truncated(order)
    solved = _solved(*some, some[0].joined(some[1]).normal_matrix(), prior).coefficients
    found = np.zeros(shape)
    found[(slice(order),) * len(shape)] = np.concatenate([[0.0], solved]).reshape((order,) * len(shape))
    return found.reshape(-1)[1:]


def _likeliest(both: CosineSums, matrix: np.ndarray) -> tuple[str, float, float]:
    """The prior of largest evidence on all of the data, whose normal matrix is ``matrix``."""
    fewer = both.truncated(max(2, int(both.order * SETTINGS.search_share)))
    part = fewer.normal_matrix()
    best = sorted(SETTINGS.priors, key=lambda prior: -_evidence(fewer, part, prior))[: SETTINGS.likely]
    return max(best, key=lambda prior: _evidence(both, matrix, prior))


def _noise(sums: CosineSums) -> float:
    return max(sums.squares / sums.count / sums.waves.ndim, SETTINGS.least_noise)


class _Tried(NamedTuple):
    """A prior with its held-out error, evidence and coefficients."""

    error: float
    evidence: float
    prior: tuple[str, float, float]
    coefficients: np.ndarray


def _evidence(sums: CosineSums, matrix: np.ndarray, prior: tuple[str, float, float]) -> float:
    """Marginal likelihood of a prior on the observations of ``sums``, whose normal matrix is ``matrix``."""
    precision = _precision(sums, matrix, prior)
    factor = cho_factor(matrix + np.diag(precision), overwrite_a=True)
    towards = sums.towards.reshape(-1)[1:]
    return _likelihood(sums, precision, factor, float(towards @ cho_solve(factor, towards)))


def _likelihood(sums: CosineSums, precision: np.ndarray, factor: tuple[np.ndarray, bool], explained: float) -> float:
    numbers = sums.count * sums.waves.ndim
    missed = max(sums.squares - explained, SETTINGS.least_noise * sums.squares) + 1e-300
    volume = 2 * np.log(np.diag(factor[0])).sum() - np.log(precision).sum()
    return -0.5 * float(volume + numbers * np.log(missed / numbers))


def _precision(sums: CosineSums, matrix: np.ndarray, prior: tuple[str, float, float]) -> np.ndarray:
    """P of a prior for sums with this normal matrix."""
    kernel, length, scale = prior
    precision = _noise(sums) / scale * _penalty(sums.box, sums.order, length, kernel)
    return precision + SETTINGS.least_noise * np.trace(matrix) / len(matrix)


def _rank(sums: CosineSums, held: CosineSums, priors: Sequence[tuple[str, float, float]]) -> list[_Tried]:
    """Priors, best first: by held-out error; those within one standard error of the best, by evidence.

    The difference of two held-out errors has the standard error 2σ(δᵀHδ)^½/n, with δ the difference of coefficients and
    H the held-out normal matrix. The evidence is the marginal likelihood on the training rows, which is far less noisy
    but does not measure how well new agents are predicted.
    """
    matrix, held_matrix = sums.normal_matrix(), held.normal_matrix()
    towards = sums.towards.reshape(-1)[1:]
    tried = []
    for prior in priors:
        precision = _precision(sums, matrix, prior)
        factor = cho_factor(matrix + np.diag(precision), overwrite_a=True)
        coefficients = cho_solve(factor, towards)
        evidence = _likelihood(sums, precision, factor, float(towards @ coefficients))
        tried.append(_Tried(_error(coefficients, held_matrix, held), evidence, prior, coefficients))
    best = min(tried, key=lambda candidate: candidate.error)
    noise = best.error / sums.waves.ndim

    def by_chance(candidate: _Tried) -> bool:
        apart = candidate.coefficients - best.coefficients
        return (
            candidate.error - best.error <= 2 * np.sqrt(noise * max(float(apart @ held_matrix @ apart), 0)) / held.count
        )

    return sorted(tried, key=lambda one: (0, -one.evidence) if by_chance(one) else (1, one.error))


def _error(coefficients: np.ndarray, matrix: np.ndarray, sums: CosineSums) -> float:
    """Mean squared error of the gradient on the observations of ``sums``, whose normal matrix is ``matrix``."""
    gained = coefficients @ matrix @ coefficients - 2 * sums.towards.reshape(-1)[1:] @ coefficients
    return max(float(gained + sums.squares), 0.0) / sums.count
