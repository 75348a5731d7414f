"""α ← α + μ K_Δ(θ−α) β/(2π(α)) (I + S) g + √μ w with S = −Sᵀ, which samples exp(βR) as μ, Δ → 0.

The paper's non-reversible learner (`eq:irl3`). The limit mixes at least as fast as `reweighted`; at a constant
step the added rotation also adds bias, so "always faster" is false, and the user gives S.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from onlooker.check import check_positive
from onlooker.density import as_density
from onlooker.inverse.base import InverseLearner
from onlooker.inverse.confine import Confine, nowhere
from onlooker.inverse.reweighted import importance_step, refuse_zero_density
from onlooker.kernels import Kernel, by_name, gaussian

__all__ = ["nonreversible"]


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
        π, the density of the points observed.
    rotation
        S, (dim, dim), skew-symmetric.
    step_size, bandwidth, beta, kernel, confine
        As in `reweighted`.
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
                f"rotation is {matrix.shape} but the points have {len(gradient)} dimensions; give one of theirs."
            )
        return jnp.sum(jnp.asarray(matrix.T, gradient.dtype) * gradient[:, None], axis=0)

    step = importance_step(
        density,
        kernel,
        step_size,
        bandwidth,
        beta,
        confine,
        turn,
    )
    settings = {
        "step_size": step_size,
        "bandwidth": bandwidth,
        "beta": beta,
        "kernel": kernel.name,
        "rotation": skew.tolist(),
    }
    return InverseLearner("nonreversible", step, settings, density, check=refuse_zero_density(density))
