"""b(α) and a(α) of the diffusion a single-kernel learner follows at a finite μ and Δ.

Averaging over θ ~ π and the gradient noise, a step's drift d has mean b μ and covariance C μ²; with the injected noise
of covariance D μ the chain follows dα = b dt + (D + μC)^{1/2} dW up to O(μ²). It includes both the bias in Δ² (b is a
smoothed field) and the bias in μ (a is not D).
"""

from collections.abc import Callable

import numpy as np
from scipy.ndimage import gaussian_filter

__all__ = ["coefficients", "seen_on_grid"]

Moments = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def coefficients(
    name: str,
    axes: tuple[np.ndarray, ...],
    moments: Moments,
    density: Callable[[np.ndarray], np.ndarray] | None = None,
    *,
    step_size: float,
    bandwidth: float = 0.0,
    beta: float = 1.0,
    occupancy: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Drift (…, dim) and diffusion (…, dim, dim) at the cell centres, with a Gaussian kernel.

    Parameters
    ----------
    name
        "classical", "passive", "second" (passive's second form) or "reweighted".
    axes
        Cell centres; Δ should span at least a cell.
    moments
        E g and E g gᵀ of the sample gradient at points.
    density
        π at points, for all but "classical".
    step_size
        μ; 0 omits the gradient noise.
    bandwidth
        Δ.
    beta
        β.
    occupancy
        The actual density of the points, if it is not π.
    """
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    dim = len(axes)
    unit = np.eye(dim)
    mean, second = moments(points)
    if name == "classical":
        noise = second - mean[..., :, None] * mean[..., None, :]
        return beta / 2 * mean, unit + step_size * beta**2 / 4 * noise
    assert density is not None
    pi = density(points)
    occupied = pi if occupancy is None else occupancy(points)
    widths = [axis[1] - axis[0] for axis in axes]

    def smooth(field: np.ndarray, scale: float) -> np.ndarray:
        sigma = [scale / width for width in widths] + [0] * (field.ndim - dim)
        return gaussian_filter(field, sigma, mode="nearest", truncate=6)

    # K_Δ² is a Gaussian of width Δ/√2 with this mass.
    squared_mass = (4 * np.pi * bandwidth**2) ** (-dim / 2)
    slope = np.stack(
        np.gradient(pi, *axes, edge_order=2) if dim > 1 else [np.gradient(pi, *axes, edge_order=2)], axis=-1
    )
    if name == "second":
        kick_mean = beta / 2 * pi[..., None] * mean + slope
        inner = slope[..., :, None] * mean[..., None, :]
        kick_second = (
            (beta / 2 * pi)[..., None, None] ** 2 * second
            + (beta / 2 * pi)[..., None, None] * (inner + np.swapaxes(inner, -1, -2))
            + slope[..., :, None] * slope[..., None, :]
        )
        drift = smooth(kick_mean * occupied[..., None], bandwidth)
        injected = smooth(pi * occupied, bandwidth)[..., None, None] * unit
        spread = squared_mass * smooth(kick_second * occupied[..., None, None], bandwidth / np.sqrt(2))
        return drift, injected + step_size * (spread - drift[..., :, None] * drift[..., None, :])
    pulled = smooth(mean * occupied[..., None], bandwidth)
    spread = squared_mass * smooth(second * occupied[..., None, None], bandwidth / np.sqrt(2))
    noise = spread - pulled[..., :, None] * pulled[..., None, :]
    if name == "passive":
        drift = (beta / 2 * pulled + slope) * pi[..., None]
        return drift, (unit + step_size * beta**2 / 4 * noise) * pi[..., None, None] ** 2
    if name == "reweighted":
        return beta / 2 * pulled / pi[..., None], unit + step_size * beta**2 / 4 * noise / pi[..., None, None] ** 2
    raise ValueError(f"name is {name!r}; choose 'classical', 'passive', 'second' or 'reweighted'.")


def seen_on_grid(
    points: np.ndarray, gradients: np.ndarray, axes: tuple[np.ndarray, ...]
) -> tuple[Moments, Callable[[np.ndarray], np.ndarray]]:
    """``moments`` and ``occupancy`` for `coefficients`, measured from learners' observations in the cells.

    With them the prediction also holds for running agents, whose gradients may depend on their path.
    """
    edges = [np.append(axis, 2 * axis[-1] - axis[-2]) - (axis[1] - axis[0]) / 2 for axis in axes]
    dim = len(axes)

    def total(weights: np.ndarray | None = None) -> np.ndarray:
        return np.histogramdd(points, bins=edges, weights=weights)[0]

    count = total()
    safe = np.maximum(count, 1)
    mean = np.stack([total(gradients[:, i]) for i in range(dim)], axis=-1) / safe[..., None]
    second = (
        np.stack(
            [np.stack([total(gradients[:, i] * gradients[:, j]) for j in range(dim)], axis=-1) for i in range(dim)],
            axis=-1,
        )
        / safe[..., None, None]
    )
    area = np.prod([axis[1] - axis[0] for axis in axes])
    return lambda _: (mean, second), lambda _: count / len(points) / area
