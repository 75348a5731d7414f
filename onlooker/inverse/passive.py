"""α ← α + μ[K_Δ(θ−α)(β/2) g + ∇π(α)] π(α) + √μ π(α) w, which samples exp(βR) as μ, Δ → 0.

The paper's main inverse learner (`eq:irl`, `eq:irl-1`). The points θ must come from π (assumption A2): with
running agents they do not, and the answer is biased. It never diverges, but freezes where π is small, so
start it inside the data.

The second form (`eq:irl-2`) takes π and ∇π at θ instead:
α ← α + μK_Δ(θ−α)[(β/2) g π(θ) + ∇π(θ)] + √(μ K_Δ(θ−α) π(θ)) w. The paper prints √(μ/Δ^N) K π w for its noise;
the variance of that is not the diffusion of the limit, and it samples another law.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import Array

from onlooker.check import check_positive
from onlooker.density import as_density
from onlooker.inverse.base import Info, InverseLearner, distance
from onlooker.inverse.confine import Confine, nowhere
from onlooker.kernels import Kernel, by_name, gaussian
from onlooker.observe.observation import Observation

__all__ = ["passive"]

FORMS = ("first", "second", "second as printed")


def passive(
    density: Any,
    *,
    step_size: float,
    bandwidth: float,
    beta: float = 1.0,
    kernel: str | Kernel = gaussian,
    form: str = "first",
    confine: Confine = nowhere,
) -> InverseLearner:
    """The passive Langevin inverse learner.

    Parameters
    ----------
    density
        π, the density of the points observed.
    step_size
        μ.
    bandwidth
        Δ of the kernel: bias O(Δ²), gradient noise O(μ/Δ^N).
    beta
        β, the inverse temperature.
    kernel
        K; a signed one is refused by the second form, which takes its square root.
    form
        "first" (π at α), "second" (π at θ), or "second as printed" with the paper's noise, for the errata.
    confine
        Keeps the chain in a region; by default nowhere does.
    """
    check_positive(step_size=step_size, bandwidth=bandwidth, beta=beta)
    if form not in FORMS:
        raise ValueError(f"form is {form!r}; choose one of {', '.join(map(repr, FORMS))}.")
    density, kernel = as_density(density), by_name(kernel)
    if form == "second" and kernel.signed:
        raise ValueError(f"kernel {kernel.name!r} takes negative values and form 'second' needs √K; use 'gaussian'.")
    root = math.sqrt(step_size)

    def first(position: Array, evidence: Observation, noise: Array) -> tuple[Array, Info]:
        weight = kernel(evidence.point - position, bandwidth)
        value, gradient = density.value_and_gradient(position)
        drift = step_size * (weight * (beta / 2) * evidence.gradient + gradient) * value
        moved, projected = confine(position, drift + root * value * noise[0])
        return moved, Info(weight, distance(evidence.point, position), projected)

    def second(position: Array, evidence: Observation, noise: Array) -> tuple[Array, Info]:
        weight = kernel(evidence.point - position, bandwidth)
        value, gradient = density.value_and_gradient(evidence.point)
        drift = step_size * weight * ((beta / 2) * evidence.gradient * value + gradient)
        if form == "second":
            spread = root * jnp.sqrt(weight * value)
        else:
            spread = root * bandwidth ** (position.shape[-1] / 2) * weight * value
        moved, projected = confine(position, drift + spread * noise[0])
        return moved, Info(weight, distance(evidence.point, position), projected)

    settings = {"step_size": step_size, "bandwidth": bandwidth, "beta": beta, "kernel": kernel.name, "form": form}
    return InverseLearner("passive", first if form == "first" else second, settings, density)
