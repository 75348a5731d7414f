"""Statistical tests, with their false-alarm rates. Seeds are fixed, so that failures are reproducible."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.stats import chi2, kstest, norm

from onlooker.simulation.exact.law import GridLaw

# Every test of a law rejects a correct sampler for about one seed in ten thousand.
FALSE_ALARM = 1e-4
# Every interval for an order misses the true order once in a thousand.
MISSES = 1e-3
# Number of draws from a null distribution: enough for p-values below FALSE_ALARM.
REPEATS = 20_000


def law_p_value(draws: np.ndarray, law: GridLaw, bins: int = 24) -> float:
    """χ² test of independent draws (n,) against a one-dimensional law, on bins of about equal probability."""
    cumulative = np.cumsum(law.mass)
    cell = law.axes[0][1] - law.axes[0][0]
    upper_edges = law.axes[0] + cell / 2
    inner = np.interp(np.arange(1, bins) / bins, cumulative, upper_edges)
    counts = np.bincount(np.searchsorted(inner, draws), minlength=bins)
    probability = np.diff(np.concatenate([[0.0], np.interp(inner, upper_edges, cumulative), [1.0]]))
    expected = probability * len(draws)
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), bins - 1))


def follows(draws: np.ndarray, law: GridLaw) -> bool:
    """Whether the χ² test does not reject the law."""
    return law_p_value(draws, law) > FALSE_ALARM


def normal_p_value(draws: np.ndarray, variance: float) -> float:
    """Kolmogorov–Smirnov and variance tests of independent draws (n,) against N(0, variance): twice the smaller p."""
    scaled = draws / np.sqrt(variance)
    tail = chi2.cdf((scaled**2).sum(), len(draws))
    return min(1.0, 2 * min(float(kstest(scaled, "norm").pvalue), 2 * float(min(tail, 1 - tail))))


def covariance_p_value(draws: np.ndarray, covariance: np.ndarray) -> float:
    """Test of E x = 0 and E x xᵀ = V by independent draws (n, dim) of any law with fourth moments, n large.

    The means of coordinates and of products are normal, with a covariance that is estimated: Hotelling's T².
    """
    rows, columns = np.triu_indices(draws.shape[1])
    looks = np.concatenate([draws, draws[:, rows] * draws[:, columns]], axis=1)
    expected = np.concatenate([np.zeros(draws.shape[1]), covariance[rows, columns]])
    away = looks.mean(axis=0) - expected
    statistic = len(draws) * away @ np.linalg.solve(np.cov(looks.T), away)
    return float(chi2.sf(statistic, len(away)))


def order_interval(sizes: Sequence[float], biases: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """Interval for p in bias = C hᵖ, by weighted least squares in logarithms; it misses p with probability MISSES."""
    x, weight = np.log(sizes), (np.asarray(biases) / np.asarray(errors)) ** 2
    away = x - np.average(x, weights=weight)
    slope = float(np.sum(weight * away * np.log(biases)) / np.sum(weight * away**2))
    half = float(norm.isf(MISSES / 2) / np.sqrt(np.sum(weight * away**2)))
    return slope - half, slope + half


def stein_p_value(draws: np.ndarray, scores: np.ndarray, seed: int = 0) -> float:
    """Test of independent draws (n, dim) against a law p, given its scores ∇log p, by the kernel Stein discrepancy.

    V = n⁻² Σ k_p(x_i, x_j) with k_p = s·s′ k + s·∇′k + s′·∇k + ∇·∇′k and the inverse multiquadric
    k = (1 + ‖x − y‖²/h²)^−½, which detects any difference of laws; h is the median distance. If the law is p, V has the
    law of n⁻² Σ ε_i ε_j k_p with random signs ε (wild bootstrap, Chwialkowski, Strathmann & Gretton 2016).
    """
    count, dim = draws.shape
    apart = draws[:, None] - draws[None]
    squared = (apart**2).sum(axis=-1)
    scale = np.median(squared[np.triu_indices(count, 1)])
    base = 1 + squared / scale
    # ∇k = −(x − y)/h² base^−³ᐟ², and ∇′k = −∇k.
    across = np.einsum("id,ijd->ij", scores, apart)
    slope = (across + across.T) * base**-1.5 / scale
    divergence = dim * base**-1.5 / scale - 3 * squared * base**-2.5 / scale**2
    kernel = scores @ scores.T * base**-0.5 + slope + divergence
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (REPEATS, count))
    null = np.einsum("bi,bi->b", signs @ kernel, signs)
    return float((1 + np.count_nonzero(null >= kernel.sum())) / (1 + REPEATS))


def wasserstein_p_value(draws: np.ndarray, law: GridLaw, seed: int = 0) -> float:
    """Test by W1 = ∫|F⁻¹ − G⁻¹| between draws (n,) and a one-dimensional law, compared with W1 of n exact draws."""
    cumulative, upper_edges = np.cumsum(law.mass), law.axes[0] + (law.axes[0][1] - law.axes[0][0]) / 2
    exact = np.interp((np.arange(len(draws)) + 0.5) / len(draws), cumulative, upper_edges)
    null = np.abs(np.interp(_sorted_uniforms(len(draws), seed), cumulative, upper_edges) - exact).mean(axis=1)
    return float((1 + np.count_nonzero(null >= np.abs(np.sort(draws) - exact).mean())) / (1 + REPEATS))


@lru_cache(maxsize=1)
def _sorted_uniforms(count: int, seed: int) -> np.ndarray:
    """Sorted uniform numbers (REPEATS, count), the same for every law."""
    return np.sort(np.random.default_rng(seed).random((REPEATS, count)), axis=1)


def variation_p_value(draws: np.ndarray, law: GridLaw, seed: int = 0, bins: int = 16) -> float:
    """Test by the total variation between draws (n,) and a law on equally likely bins, compared with exact draws."""
    cumulative, upper_edges = np.cumsum(law.mass), law.axes[0] + (law.axes[0][1] - law.axes[0][0]) / 2
    inner = np.interp(np.arange(1, bins) / bins, cumulative, upper_edges)
    counts = np.bincount(np.searchsorted(inner, draws), minlength=bins)
    null = np.random.default_rng(seed).multinomial(len(draws), np.full(bins, 1 / bins), REPEATS)
    own, others = (0.5 * np.abs(part / len(draws) - 1 / bins).sum(axis=-1) for part in (counts, null))
    # Counts are whole numbers: equal distances must not differ by rounding.
    return float((1 + np.count_nonzero(others >= own - 1e-9)) / (1 + REPEATS))
