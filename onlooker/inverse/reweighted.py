"""α ← α + μ K_Δ(θ−α) β/(2π(α)) g + √μ w, which samples exp(βR) as μ, Δ → 0.

The paper's second single-kernel learner (`eq:irl2`). The factor 1/π(α) grows without bound in the tails of π and
throws chains out of them: confine it to a ball that the points fill. A density with a bounded support must not
have the chain leave it: where π is zero there is no drift, and a start there is refused.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.check import check_positive
from onlooker.density import Density, as_density
from onlooker.inverse.base import Info, InverseLearner, Step, distance
from onlooker.inverse.confine import Confine, nowhere
from onlooker.kernels import Kernel, by_name, gaussian
from onlooker.observe.observation import Observation

__all__ = ["importance_step", "refuse_zero_density", "reweighted"]


def reweighted(
    density: Any,
    *,
    step_size: float,
    bandwidth: float,
    beta: float = 1.0,
    kernel: str | Kernel = gaussian,
    confine: Confine = nowhere,
) -> InverseLearner:
    """The importance-weighted Langevin inverse learner.

    Parameters
    ----------
    density
        π, the density of the points observed.
    step_size
        μ.
    bandwidth
        Δ of the kernel: bias O(Δ²), gradient noise O(μ/(Δ^N π)).
    beta
        β, the inverse temperature.
    kernel
        K, of any kind.
    confine
        Keeps the chain in a region, such as ``ball(3.5)``; by default nowhere does.
    """
    check_positive(step_size=step_size, bandwidth=bandwidth, beta=beta)
    density, kernel = as_density(density), by_name(kernel)
    settings = {"step_size": step_size, "bandwidth": bandwidth, "beta": beta, "kernel": kernel.name}
    step = importance_step(density, kernel, step_size, bandwidth, beta, confine)
    return InverseLearner("reweighted", step, settings, density, check=refuse_zero_density(density))


def importance_step(
    density: Density,
    kernel: Kernel,
    step_size: float,
    bandwidth: float,
    beta: float,
    confine: Confine,
    turn: Callable[[Array], Array] = lambda gradient: gradient,
) -> Step:
    """The step shared with `nonreversible`, whose ``turn`` is g ↦ (I + S) g."""
    root = math.sqrt(step_size)

    def step(position: Array, evidence: Observation, noise: Array) -> tuple[Array, Info]:
        displacement = evidence.point - position
        weight = kernel(displacement, bandwidth)
        log_prob = density.log_prob(position)
        ratio = kernel.ratio(displacement, bandwidth, log_prob)
        drift = step_size * (jnp.where(log_prob > -jnp.inf, ratio, 0) * (beta / 2) * turn(evidence.gradient))
        moved, projected = confine(position, drift + root * noise[0])
        return moved, Info(weight, distance(evidence.point, position), projected)

    return step


def refuse_zero_density(density: Density) -> Callable[[np.ndarray], None]:
    """A check of starting positions (n, dim): π must be positive at each."""

    def check(positions: np.ndarray) -> None:
        lost = int(np.count_nonzero(~density.is_positive(positions)))
        if lost:
            raise ValueError(
                f"start puts {lost} of {len(positions)} chains where the density is zero; start inside its support."
            )

    return check
