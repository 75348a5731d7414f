"""α ← α + μ[K_Δ(θ−α)(β/2) g + ∇π(α)] π(α) + √μ π(α) w, which samples exp(βR) as μ, Δ → 0.

The paper's main inverse learner (`eq:irl`, `eq:irl-1`). The points θ must come from π (assumption A2): points of
running agents do not, and the answer is biased. It never diverges, but freezes where π is small: start it inside the
data.

The second form (`eq:irl-2`) takes π and ∇π at θ instead:
α ← α + μK_Δ(θ−α)[(β/2) g π(θ) + ∇π(θ)] + √(μ K_Δ(θ−α) π(θ)) w. The paper prints √(μ/Δ^N) K π w for the noise,
whose variance is not the diffusion of the limit: it samples another law (`paper.errata.as_printed`).
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from onlooker.core.density import Density, as_density, standard_normal
from onlooker.core.kernels import Kernel, by_name, gaussian
from onlooker.core.settings import check_positive
from onlooker.data.observations import Observation
from onlooker.inverse.base import Info, InverseLearner, Step, distance
from onlooker.inverse.confine import Confine, nowhere
from onlooker.inverse.examples import Example, observed
from onlooker.inverse.moved import from_paper

__all__ = ["examples", "passive", "second_form"]

FORMS = ("first", "second")


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
        π, the density of the observed points.
    step_size
        μ.
    bandwidth
        Δ of the kernel: bias O(Δ²), gradient noise O(μ/Δ^N).
    beta
        β, the inverse temperature.
    kernel
        K: a kernel or its name; the second form, which takes √K, rejects signed ones.
    form
        "first" (π at α) or "second" (π at θ).
    confine
        Keeps the chain in a region; default: unconfined.
    """
    options = {"step_size": step_size, "bandwidth": bandwidth, "beta": beta}
    if form == "second as printed":
        printed: InverseLearner = from_paper("passive(form='second as printed')", "errata", "as_printed")(
            density, **options, kernel=kernel, confine=confine
        )
        return printed
    check_positive(**options)
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

    settings = {**options, "kernel": kernel.name, "form": form}
    if form == "first":
        return InverseLearner("passive", first, settings, density)

    def spread(weight: Array, value: Array, dim: int) -> Array:
        return root * jnp.sqrt(weight * value)

    return InverseLearner(
        "passive", second_form(density, kernel, **options, confine=confine, spread=spread), settings, density
    )


def second_form(
    density: Density,
    kernel: Kernel,
    *,
    step_size: float,
    bandwidth: float,
    beta: float,
    confine: Confine,
    spread: Callable[[Array, Array, int], Array],
) -> Step:
    """The step with π at θ; ``spread(K_Δ(θ−α), π(θ), dim)`` is the standard deviation of its noise."""

    def step(position: Array, evidence: Observation, noise: Array) -> tuple[Array, Info]:
        weight = kernel(evidence.point - position, bandwidth)
        value, gradient = density.value_and_gradient(evidence.point)
        drift = step_size * weight * ((beta / 2) * evidence.gradient * value + gradient)
        moved, projected = confine(position, drift + spread(weight, value, position.shape[-1]) * noise[0])
        return moved, Info(weight, distance(evidence.point, position), projected)

    return step


def examples() -> dict[str, Example]:
    def made(form: str) -> InverseLearner:
        return passive(standard_normal(2), step_size=1e-2, bandwidth=0.5, form=form)

    return {
        "passive": Example(lambda: made("first"), observed, start=[0.3, 0.1]),
        "passive, second form": Example(lambda: made("second"), observed, start=[0.3, 0.1]),
    }
