"""Two formulas as the paper prints them, which do not do what it says: for the errata, not for use."""

import math
from typing import Any

import jax.numpy as jnp
from jax import Array

from onlooker.core.density import as_density
from onlooker.core.kernels import Kernel, by_name, gaussian
from onlooker.core.settings import check_positive
from onlooker.inverse.base import InverseLearner
from onlooker.inverse.confine import Confine, nowhere
from onlooker.inverse.passive import second_form

__all__ = ["as_printed", "fade"]


def as_printed(
    density: Any,
    *,
    step_size: float,
    bandwidth: float,
    beta: float = 1.0,
    kernel: str | Kernel = gaussian,
    confine: Confine = nowhere,
) -> InverseLearner:
    """The second form of `passive` with the noise √(μ/Δ^N) K π w that the paper prints.

    The variance of that noise is not the diffusion of the limit: the chain samples another law.

    Parameters
    ----------
    density
        π, the density of the observed points.
    step_size
        μ.
    bandwidth
        Δ of the kernel.
    beta
        β, the inverse temperature.
    kernel
        K: a kernel or its name.
    confine
        Keeps the chain in a region; default: unconfined.
    """
    options = {"step_size": step_size, "bandwidth": bandwidth, "beta": beta}
    check_positive(**options)
    density, kernel = as_density(density), by_name(kernel)
    root = math.sqrt(step_size)

    def spread(weight: Array, value: Array, dim: int) -> Array:
        return root * bandwidth ** (dim / 2) * weight * value

    step = second_form(density, kernel, **options, confine=confine, spread=spread)
    return InverseLearner("passive", step, {**options, "kernel": kernel.name, "form": "second as printed"}, density)


def fade(radius: float) -> Confine:
    """The truncation of the paper's proof, δ·q_M(α) with q_M = 1 in the ball and 0 beyond radius + 1.

    It slows the chain near the boundary and so changes the law there.
    """
    check_positive(radius=radius)

    def confine(position: Array, increment: Array) -> tuple[Array, Array]:
        excess = jnp.clip(jnp.sqrt(jnp.sum(position * position)) - radius, 0, 1)
        kept = 1 - excess * excess * (3 - 2 * excess)
        return position + kept * increment, (excess > 0).astype(position.dtype)

    return confine
