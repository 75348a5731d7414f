"""α ← α + μ K_Δ(θ−α) β/(2π(α)) g + √μ w, which samples exp(βR) as μ, Δ → 0.

The paper's second single-kernel learner (`eq:irl2`). The factor 1/π(α) grows without bound in the tails of π and
throws chains out: confine them to a ball that the points fill. Outside a bounded support of π there is no drift, and a
start there is rejected.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.density import Density, as_density, standard_normal
from onlooker.core.kernels import Kernel, by_name, gaussian
from onlooker.core.settings import check_positive
from onlooker.data.observations import Observation
from onlooker.inverse.base import Info, InverseLearner, Step, distance
from onlooker.inverse.confine import Confine, ball, nowhere
from onlooker.inverse.examples import Example, observed

__all__ = ["examples", "importance_step", "reject_zero_density", "reweighted"]


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
        π, the density of the observed points.
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
    density, kernel = as_density(density), by_name(kernel)
    settings = {"step_size": step_size, "bandwidth": bandwidth, "beta": beta, "kernel": kernel.name}
    step = importance_step(density, kernel, step_size, bandwidth, beta, confine)
    return InverseLearner("reweighted", step, settings, density, check=reject_zero_density(density), plain_noise=True)


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


def reject_zero_density(density: Density) -> Callable[[np.ndarray], None]:
    """A check that π is positive at all starting positions (n, dim)."""

    def check(positions: np.ndarray) -> None:
        lost = int(np.count_nonzero(~density.is_positive(positions)))
        if lost:
            raise ValueError(
                f"start puts {lost} of {len(positions)} chains where the density is zero; start inside its support."
            )

    return check


def examples() -> dict[str, Example]:
    def made() -> InverseLearner:
        return reweighted(standard_normal(2), step_size=1e-2, bandwidth=0.5, confine=ball(3.0))

    return {"reweighted": Example(made, observed, start=[0.3, 0.0])}
