"""min over shares s ≥ 0, Σs = 1 of E|y − Σ sₘŷₘ|²: how much each of several fits counts in their mean.

Stacking (Wolpert 1992; Breiman 1996) on held-out rows. Shares are averaged over resamples of the agents (bagging), so
that fits which the held-out rows cannot tell apart count about the same.
"""

import numpy as np

__all__ = ["stacked", "stacked_losses"]

# Resamples of the groups of rows.
RESAMPLES = 40
# Shares below this are left out.
LEAST_SHARE = 0.05


def stacked(products: np.ndarray, seed: int = 0) -> np.ndarray:
    """Shares (fits,) from ``products`` (groups, fits, fits): for each group of rows, sums of rᵢ·rⱼ of residuals."""
    generator, (groups, fits, _) = np.random.default_rng(seed), products.shape
    shares = np.zeros(fits)
    for _ in range(RESAMPLES):
        weights = np.bincount(generator.integers(0, groups, groups), minlength=groups)
        shares += _least(np.tensordot(weights, products, 1))
    shares = np.where(shares < LEAST_SHARE * RESAMPLES, 0, shares)
    return shares / shares.sum()


def stacked_losses(products: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Sums (groups,) of the squares that the mean with these shares leaves."""
    return np.einsum("i,gij,j->g", shares, products, shares)


def _least(product: np.ndarray) -> np.ndarray:
    """The shares s of least sᵀGs: those of the least s ≥ 0 of sᵀGs + m(Σs − 1)², for any m, up to a factor."""
    # Imported here: it takes long, and most fits do without.
    from scipy.optimize import nnls

    variance, axes = np.linalg.eigh(product / np.trace(product))
    root = np.sqrt(np.maximum(variance, 0))[:, None] * axes.T
    size = len(product)
    found = nnls(np.vstack([root, np.ones(size)]), np.append(np.zeros(size), 1.0))[0]
    return found / found.sum()
