"""α ← α + μ K_Δ(θ−α) β/(2π(α)) (I + S) g + √μ w with S = −Sᵀ, which samples exp(βR) as μ, Δ → 0.

The paper's non-reversible learner (`eq:irl3`). The limit mixes at least as fast as `reweighted`; at a constant
step size the rotation also adds bias, so it is not always faster, and S is left to the user.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from onlooker.core.density import as_density, standard_normal
from onlooker.core.kernels import Kernel, by_name, gaussian
from onlooker.core.settings import check_positive
from onlooker.inverse.base import InverseLearner
from onlooker.inverse.confine import Confine, nowhere
from onlooker.inverse.examples import Example, observed
from onlooker.inverse.reweighted import importance_step, reject_zero_density

__all__ = ["examples", "nonreversible"]


def nonreversible(
    density: Any,
    *,
    rotation: ArrayLike,
    step_size: float,
    bandwidth: float,
    beta: float = 1.0,
    kernel: str | Kernel = gaussian,
    confine: Confine = nowhere,
) -> InverseLearner:
    """The non-reversible Langevin inverse learner.

    Parameters
    ----------
    density
        π, the density of the observed points.
    rotation
        S, (dim, dim), skew-symmetric.
    step_size
        μ.
    bandwidth
        Δ of the kernel: bias O(Δ²), gradient noise O(μ/(Δ^N π)).
    beta
        β, the inverse temperature.
    kernel
        K: a kernel or its name.
    confine
        Keeps the chain in a region, such as ``ball(3.5)``; default: unconfined.
    """
    check_positive(step_size=step_size, bandwidth=bandwidth, beta=beta)
    skew = np.asarray(rotation, dtype=float)
    if skew.ndim != 2 or skew.shape[0] != skew.shape[1]:
        raise ValueError(f"rotation has shape {skew.shape}; give a square matrix S with S = -S.T.")
    if not np.allclose(skew, -skew.T):
        raise ValueError("rotation is not skew-symmetric; give a matrix S with S = -S.T.")
    density, kernel = as_density(density), by_name(kernel)
    matrix = np.eye(len(skew)) + skew

    def turn(gradient: Array) -> Array:
        if len(gradient) != len(matrix):
            raise ValueError(
                f"rotation has shape {matrix.shape} but points {len(gradient)} dimensions; give a matrix that fits."
            )
        return jnp.sum(jnp.asarray(matrix.T, gradient.dtype) * gradient[:, None], axis=0)

    step = importance_step(density, kernel, step_size, bandwidth, beta, confine, turn)
    settings = {
        "step_size": step_size,
        "bandwidth": bandwidth,
        "beta": beta,
        "kernel": kernel.name,
        "rotation": skew.tolist(),
    }
    return InverseLearner("nonreversible", step, settings, density, check=reject_zero_density(density))


def examples() -> dict[str, Example]:
    def made() -> InverseLearner:
        return nonreversible(standard_normal(2), rotation=[[0.0, 1.0], [-1.0, 0.0]], step_size=1e-2, bandwidth=0.5)

    return {"nonreversible": Example(made, observed, start=[0.3, 0.0])}
