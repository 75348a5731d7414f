"""α ← α + μ K_Δ(θ−α) g + √(2μ/β) w: the obvious attempt, which fails.

Its limit drifts along π∇R (`eq:irlstandard`), which is a gradient only for N = 1, and has no stationary law when
π decays. Without the kernel (as in fig:logistic(c)) the drift does not even depend on α. It is kept to show that.
"""

import math

import jax.numpy as jnp
from jax import Array

from onlooker.core.kernels import Kernel, by_name, gaussian
from onlooker.core.settings import check_positive
from onlooker.data.observations import Observation
from onlooker.inverse.base import Info, InverseLearner, distance
from onlooker.inverse.confine import Confine, nowhere
from onlooker.inverse.examples import Example, observed

__all__ = ["examples", "naive"]


def naive(
    *,
    step_size: float,
    bandwidth: float | None,
    beta: float = 1.0,
    kernel: str | Kernel = gaussian,
    confine: Confine = nowhere,
) -> InverseLearner:
    """Classical Langevin dynamics with gradients from other points than the chain's.

    Parameters
    ----------
    step_size
        μ.
    bandwidth
        Δ of the kernel; ``None`` leaves the kernel out.
    beta
        β, the inverse temperature.
    kernel
        K: a kernel or its name.
    confine
        Keeps the chain in a region; default: unconfined.
    """
    check_positive(step_size=step_size, beta=beta, bandwidth=1.0 if bandwidth is None else bandwidth)
    kernel = by_name(kernel)
    root = math.sqrt(2 * step_size / beta)

    def step(position: Array, evidence: Observation, noise: Array) -> tuple[Array, Info]:
        weight = jnp.ones((), position.dtype) if bandwidth is None else kernel(evidence.point - position, bandwidth)
        moved, projected = confine(position, step_size * weight * evidence.gradient + root * noise[0])
        return moved, Info(weight, distance(evidence.point, position), projected)

    settings = {"step_size": step_size, "bandwidth": bandwidth, "beta": beta, "kernel": kernel.name}
    return InverseLearner("naive", step, settings)


def examples() -> dict[str, Example]:
    return {"naive": Example(lambda: naive(step_size=1e-2, bandwidth=0.5), observed)}
