"""Statistical helpers of the tests, with their false-alarm rates. Seeds are fixed: a failure is reproducible."""

import numpy as np
from scipy.stats import chi2, kstest

from onlooker.truth.law import GridLaw

# Every law test below rejects a right sampler once in ten thousand choices of its seed.
FALSE_ALARM = 1e-4


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
    return law_p_value(draws, law) > FALSE_ALARM


def normal_p_value(draws: np.ndarray, variance: float) -> float:
    """Kolmogorov–Smirnov and variance tests of independent draws (n,) against N(0, variance), the smaller p."""
    scaled = draws / np.sqrt(variance)
    tail = chi2.cdf((scaled**2).sum(), len(draws))
    return min(float(kstest(scaled, "norm").pvalue), 2 * float(min(tail, 1 - tail)))
