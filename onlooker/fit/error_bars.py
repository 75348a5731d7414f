"""z = (R̂_a − R̂_b)/error: the difference of two fits to different agents, in units of their error bars.

Error bars given the basis miss what the basis cannot represent. Such misfit shows as disagreement between fits to
different agents: error bars are widened by the root mean square of z when it exceeds 1.
"""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve

__all__ = ["disagreement", "typical_points"]

# Number of points over which R̂ is averaged: enough for a stable mean, and cheap to evaluate.
TYPICAL = 500


def typical_points(points: np.ndarray, seed: int, count: int = TYPICAL) -> np.ndarray:
    """A sample (n, dim) of the points: error bars are those of R̂ minus its mean over it."""
    return points[np.random.default_rng(seed).integers(0, len(points), count)].astype(float)


def disagreement(
    halves: Sequence[tuple[np.ndarray, np.ndarray]], penalty: np.ndarray, features: np.ndarray, noise: float
) -> float:
    """Root mean square difference of two fits to different agents, in units of their error bars; at least 1.

    Parameters
    ----------
    halves
        Normal matrix and right-hand side of each fit.
    penalty
        Diagonal added to both normal matrices.
    features
        Centred features (points, terms) where the fits are compared.
    noise
        Variance of the gradients' noise.
    """
    apart, variance = np.zeros(len(features)), np.zeros(len(features))
    for sign, (matrix, towards) in zip((1, -1), halves, strict=True):
        factor = cho_factor(matrix + np.diag(penalty))
        apart += sign * (features @ cho_solve(factor, towards))
        variance += noise * np.einsum("np,pn->n", features, cho_solve(factor, features.T))
    varies = variance > 1e-12 * variance.max()
    return max(1.0, float(np.sqrt(np.mean(apart[varies] ** 2 / variance[varies])))) if varies.any() else 1.0
