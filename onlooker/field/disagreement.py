"""z = (R̂_a − R̂_b)/error: two fits to different agents, in their own error bars.

Error bars given the basis are blind to what the basis cannot say. That it says different things to different agents
gives it away: they are widened by the root mean square of z, when that is above 1.
"""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve

__all__ = ["disagreement"]


def disagreement(
    halves: Sequence[tuple[np.ndarray, np.ndarray]], penalty: np.ndarray, features: np.ndarray, noise: float
) -> float:
    """How far apart two fits to different agents are, in their own error bars, and 1 at least.

    Each half is a normal matrix and a right-hand side; features are centred, (places, terms).
    """
    apart, variance = np.zeros(len(features)), np.zeros(len(features))
    for sign, (matrix, towards) in zip((1, -1), halves, strict=True):
        factor = cho_factor(matrix + np.diag(penalty))
        apart += sign * (features @ cho_solve(factor, towards))
        variance += noise * np.einsum("np,pn->n", features, cho_solve(factor, features.T))
    seen = variance > 1e-12 * variance.max()
    return max(1.0, float(np.sqrt(np.mean(apart[seen] ** 2 / variance[seen])))) if seen.any() else 1.0
