"""α ← fold(α + δ + μ·½∇log|det ∂φ/∂α|): an inverse learner in coordinates of policies.

Without the last term it samples exp(βR) dα, the law of coordinates; with it exp(βR) dφ, the law of policies. The paper
omits it. The term has a pole at the ends of the interval of angles: it is clipped at ±1/√μ, as large as the noise.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import Array

from onlooker.core.policies import Coordinates, check_measure, spherical
from onlooker.inverse.base import InverseLearner
from onlooker.inverse.classical import classical
from onlooker.inverse.examples import Example, answers

__all__ = ["examples", "on_policies"]


def on_policies(learner: InverseLearner, coordinates: Coordinates, measure: str = "coordinates") -> InverseLearner:
    """The same learner, folded into the coordinates of policies.

    Parameters
    ----------
    learner
        An inverse learner whose points are in these coordinates.
    coordinates
        `spherical(states, actions)` or `softmax(states, actions)`.
    measure
        "coordinates" for exp(βR) dα, "policy" for exp(βR) dφ.
    """
    check_measure(measure, coordinates)
    if measure == "policy" and not learner.plain_noise:
        raise ValueError(
            f"measure is 'policy' but {learner.name} does not have plain noise; use a learner that has, such as replay."
        )
    step_size = learner.settings["step_size"]
    steepest = 1 / math.sqrt(step_size)

    def step(position: Array, evidence: Any, noise: Array) -> tuple[Array, Any]:
        moved, info = learner.step(position, evidence, noise)
        if measure == "policy":
            moved = moved + step_size * jnp.clip(coordinates.drift(position), -steepest, steepest)
        return coordinates.fold(moved)[0], info

    settings = {**learner.settings, "coordinates": coordinates.name, "measure": measure}
    return learner._replace(step=step, settings=settings)


def examples() -> dict[str, Example]:
    def made() -> InverseLearner:
        return on_policies(classical(step_size=1e-3), spherical(2, 2), "policy")

    return {"on_policies": Example(made, answers, start=[0.7, 0.6])}
