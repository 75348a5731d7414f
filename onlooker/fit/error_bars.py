"""V(x) = max(V_B, V_S + V_P) + ½[D²(x) + mean D²]: the variance of R̂(x) minus its mean over typical points.

R̂ = c·φ minimises Σω|g − ∇R̂|² + cᵀPc. With A its normal matrix, P included, ψ = φ(x) less its mean over typical points,
h = A⁻¹ψ, and the residuals r = g − ∇R̂:

    V_B = σ²ψ·h                      noise, as if it were even and independent
    V_S = B/(B − 1) Σ_b (h·s_b)²     noise as it is: s_b = Σω∇φ·r over the agents of bucket b, less its share of all
    V_P = max(σ², τ²) hᵀPh           what the prior smooths away, on average, if c has the variance τ²P⁻¹
    D                                what it smooths away here: R̂ less fits that might have been chosen instead

τ² = cᵀPc/(p − tr A⁻¹P) is the prior's own scale. V_S is the sandwich estimator over clusters (Liang & Zeger 1986); with
few of them it is widened by the quantile of t. D crosses zero where two fits happen to agree, which is why half of it
is its mean.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

__all__ = ["BUCKETS", "Clustered", "clustered", "drawn_errors", "sandwich", "scaled", "typical_points", "widened"]

# Number of points over which R̂ is averaged: enough for a stable mean, and cheap to evaluate.
TYPICAL = 500
# Groups of agents whose scores are summed: their squares are then known to a third.
BUCKETS = 20
# Probability at which few buckets have the quantile of t: that of two standard errors.
TWO_SIDED = 0.977


class Clustered(NamedTuple):
    """Rows in buckets of whole agents.

    Attributes
    ----------
    rows
        Indices (n,) of rows, bucket after bucket.
    edges
        Where each bucket begins, and the end of the last (buckets + 1,).
    """

    rows: np.ndarray
    edges: np.ndarray

    def parts(self) -> list[np.ndarray]:
        """The rows of each bucket."""
        return np.split(self.rows, self.edges[1:-1])


def clustered(count: int, agents: np.ndarray | None, seed: int, most: int) -> Clustered:
    """Buckets of about equally many rows: of agents at random or, if they are unknown, of consecutive rows.

    There are about ``most`` rows at most: those of whole agents, so that sums over all of them have a variance that is
    larger by the ratio of the rows.
    """
    if agents is None or (agents == agents[0]).all():
        # Consecutive stretches, each cut short if there are too many rows.
        edges = np.arange(BUCKETS + 1) * count // BUCKETS
        parts = [np.arange(low, min(high, low + most // BUCKETS)) for low, high in pairwise(edges) if low < high]
        return Clustered(np.concatenate(parts), np.cumsum([0, *map(len, parts)]))
    names, which = np.unique(agents, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(names))
    sizes = np.bincount(which)[order]
    before = np.cumsum(sizes) - sizes
    kept = (before < most) | (np.arange(len(names)) < 2)
    total = min(len(names), BUCKETS)
    # The bucket of each agent, in the order of the permutation.
    place = np.minimum(before * total // max(int(sizes[kept].sum()), 1), total - 1)
    bucket = np.empty(len(names), int)
    bucket[order] = np.where(kept, place, -1)
    mine = bucket[which]
    rows = np.argsort(mine, kind="stable")[np.count_nonzero(mine < 0) :]
    counts = np.bincount(mine[rows])
    return Clustered(rows, np.concatenate([[0], np.cumsum(counts[counts > 0])]))


def sandwich(scores: np.ndarray, sizes: np.ndarray, share: float) -> np.ndarray:
    """√(B/(B − 1)) s_b for scores (terms, buckets) of buckets of these sizes, widened if buckets are few.

    Parameters
    ----------
    scores
        Σω∇φ·r of each bucket.
    sizes
        Weight of each bucket.
    share
        Share of all rows that the buckets have: sums over all agents have a variance that is larger by its inverse.
    """
    buckets = len(sizes)
    if buckets < 2:
        return np.full_like(scores, np.inf)
    apart = scores - scores.sum(axis=1, keepdims=True) * sizes / sizes.sum()
    few = stdtrit(buckets - 1, TWO_SIDED) / ndtri(TWO_SIDED)
    return apart * few * np.sqrt(buckets / (buckets - 1) / share)


def widened(variance: np.ndarray, apart: Sequence[np.ndarray], usual: Sequence[float]) -> np.ndarray:
    """V = variance + ½Σ[D² + mean D²] for differences D (n,) from other fits, and their mean squares."""
    for difference, mean in zip(apart, usual, strict=True):
        variance = variance + 0.5 * (difference**2 + mean)
    return variance


def scaled(covariance: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """A covariance (n, n) with the correlations of another one and these standard errors (n,)."""
    sizes = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    return covariance * np.outer(errors / sizes, errors / sizes)


def drawn_errors(covariance: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Normal draws (count, n) with this covariance, which need not have full rank."""
    variances, axes = np.linalg.eigh(covariance)
    return generator.standard_normal((count, len(axes))) @ (axes * np.sqrt(np.maximum(variances, 0))).T


def typical_points(points: np.ndarray, seed: int, count: int = TYPICAL) -> np.ndarray:
    """A sample (n, dim) of the points: error bars are those of R̂ minus its mean over it."""
    return points[np.random.default_rng(seed).integers(0, len(points), count)].astype(float)
