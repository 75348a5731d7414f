"""R̂(x) = b·(x − m) + ½(x − m)ᵀH(x − m): least squares on gradients, in closed form.

H is symmetric, so that b + H(x − m) is a gradient: SH + HS + 2λH = C + Cᵀ with S = Σ(x−m)(x−m)ᵀ, C = Σ(x−m)gᵀ. The
penalty λ is the one that predicts held-out gradients best.
"""

from typing import NamedTuple

import numpy as np

__all__ = ["Quadratic", "fit_quadratic", "no_quadratic"]

# Penalties λ tried, per row and in variances of the points: none, and from negligible to dominant.
PENALTIES = (0.0, *10.0 ** np.arange(-4, 3))


class Quadratic(NamedTuple):
    """A quadratic reward about ``centre``.

    Attributes
    ----------
    centre
        m.
    slope
        b.
    curvature
        H.
    axes
        Eigenvectors of S, in columns: along them the entries of H are independent.
    variance
        Variances (dim, dim) of H's entries along the axes.
    slope_variance
        Variance of each entry of b.
    """

    centre: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray
    axes: np.ndarray
    variance: np.ndarray
    slope_variance: float

    def value(self, points: np.ndarray) -> np.ndarray:
        away = points - self.centre
        return away @ self.slope + 0.5 * np.einsum("ni,ni->n", away @ self.curvature, away)

    def gradient(self, points: np.ndarray) -> np.ndarray:
        return self.slope + (points - self.centre) @ self.curvature

    def error_squared(self, points: np.ndarray, about: np.ndarray) -> np.ndarray:
        """Variance of R̂(x) minus its mean over the points ``about``."""
        along, others = (points - self.centre) @ self.axes, (about - self.centre) @ self.axes
        product = along[:, :, None] * along[:, None, :] - np.einsum("ni,nj->ij", others, others) / len(others)
        # An off-diagonal entry of H appears twice: its product has the factor ½·2 = 1, against ½ on the diagonal.
        share = np.where(np.eye(len(self.centre), dtype=bool), 0.25, 0.5)
        shift = ((along - others.mean(axis=0)) ** 2).sum(axis=1)
        return np.einsum("nij,ij->n", product**2, share * self.variance) + self.slope_variance * shift


def no_quadratic(dim: int) -> Quadratic:
    """The zero quadratic."""
    zero, square = np.zeros(dim), np.zeros((dim, dim))
    return Quadratic(zero, zero, square, np.eye(dim), square, 0.0)


def fit_quadratic(
    points: np.ndarray,
    gradients: np.ndarray,
    held_points: np.ndarray,
    held_gradients: np.ndarray,
    weights: np.ndarray | None = None,
    held_weights: np.ndarray | None = None,
) -> tuple[Quadratic, float]:
    """Fit to the first two arrays (n, dim); also return the mean squared error of the gradient on the held-out rows.

    Rows have ``weights`` and ``held_weights`` (n,), and equal ones by default.
    """
    centre, slope = _mean(points, weights), _mean(gradients, weights)
    away = points - centre
    total, weighted = (len(points), away) if weights is None else (float(weights.sum()), weights[:, None] * away)
    across = weighted.T @ (gradients - slope)
    spread, axes = np.linalg.eigh(weighted.T @ away)
    turned = axes.T @ (across + across.T) @ axes
    best: tuple[float, Quadratic] | None = None
    for penalty in PENALTIES:
        divisor = spread[:, None] + spread + 2 * penalty * total
        curvature = axes @ np.divide(turned, divisor, out=np.zeros_like(turned), where=divisor > 0) @ axes.T
        variance = np.divide(1.0, divisor, out=np.zeros_like(turned), where=divisor > 0)
        candidate = Quadratic(centre, slope, curvature, axes, variance, 1 / total)
        missed = ((held_gradients - candidate.gradient(held_points)) ** 2).sum(axis=1)
        error = float(_mean(missed, held_weights))
        if best is None or error < best[0]:
            noise = error / len(centre)
            best = error, candidate._replace(variance=noise * variance, slope_variance=noise / total)
    assert best is not None
    return best[1], best[0]


def _mean(rows: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    return rows.mean(axis=0, dtype=float) if weights is None else weights @ rows / weights.sum()
