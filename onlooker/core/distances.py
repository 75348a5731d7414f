"""Distances between two laws: TV = ½ Σ|p − q| over bins, and W1 = ∫|F − G|."""

import numpy as np

from onlooker.core.histogram import Histogram

__all__ = ["marginal_variations", "quantile_distance", "quantiles", "total_variation", "wasserstein"]


def total_variation(one: Histogram, other: Histogram) -> float:
    """Total variation between two histograms on the same bins, overflow bins included.

    Examples
    --------
    >>> edges = (np.array([0.0, 1.0, 2.0]),)
    >>> one = Histogram.of(np.array([[0.5], [0.5], [1.5], [1.5]]), edges)
    >>> other = Histogram.of(np.array([[0.5], [1.5], [1.5], [7.0]]), edges)
    >>> total_variation(one, other)
    0.25
    """
    same = len(one.edges) == len(other.edges) and all(
        a.shape == b.shape and np.allclose(a, b) for a, b in zip(one.edges, other.edges, strict=True)
    )
    if not same:
        raise ValueError("the two histograms have different bins; build both on the same edges.")
    return 0.5 * float(np.abs(one.probabilities - other.probabilities).sum())


def marginal_variations(one: Histogram, other: Histogram) -> list[float]:
    """Total variation between each marginal of two joint histograms: the paper's d(1), d(2), …"""
    return [total_variation(one.marginal(axis), other.marginal(axis)) for axis in range(len(one.edges))]


def wasserstein(one: Histogram, other: Histogram) -> float:
    """W1 between two one-dimensional histograms, with bin weights at the centres and overflow at the outer edges.

    Examples
    --------
    >>> edges = (np.array([0.0, 1.0, 2.0]),)
    >>> one, other = (Histogram.of(np.array([[point]]), edges) for point in (0.5, 1.5))
    >>> wasserstein(one, other)
    1.0
    """
    points = [
        np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
        for edges in (one.edges[0], other.edges[0])
    ]
    # Imported here: scipy.stats is slow to import.
    from scipy.stats import wasserstein_distance

    return float(wasserstein_distance(points[0], points[1], one.probabilities, other.probabilities))


def quantiles(samples: np.ndarray, count: int = 256) -> np.ndarray:
    """Quantiles (dim, count) of samples (n, dim), at probabilities (i + ½)/count."""
    return np.quantile(samples, (np.arange(count) + 0.5) / count, axis=0).T


def quantile_distance(samples: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """W1 = ∫|F⁻¹ − G⁻¹| between each marginal of samples (n, dim) and the quantiles (dim, count) of a reference.

    Examples
    --------
    >>> reference = quantiles(np.linspace(0, 1, 1001)[:, None])
    >>> quantile_distance(np.linspace(0.5, 1.5, 1001)[:, None], reference).round(6).tolist()
    [0.5]
    """
    if samples.shape[1] != len(reference):
        raise ValueError(f"samples have {samples.shape[1]} coordinates but the reference has {len(reference)}.")
    return np.abs(quantiles(samples, reference.shape[1]) - reference).mean(axis=1)
