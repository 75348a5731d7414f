"""α ← fold(α + δ + μ·½∇log|det ∂φ/∂α|): any inverse learner in coordinates of policies, for one of two laws.

Without the last term it samples exp(βR) dα, the law of coordinates; with it exp(βR) dφ, the law of policies. The paper
forgets it. The term has a pole at the ends of the interval of angles: it is cut off at ±1/√μ, a step of the noise.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import Array

from onlooker.coordinates import Coordinates, check_measure
from onlooker.inverse.base import InverseLearner

__all__ = ["on_policies"]

# Learners whose noise is √μ w and whose drift is half a gradient.
PLAIN = ("active", "classical", "multikernel", "replay", "reweighted")


def on_policies(learner: InverseLearner, coordinates: Coordinates, measure: str = "coordinates") -> InverseLearner:
    """The learner, kept among the coordinates of policies.

    Parameters
    ----------
    learner
        An inverse learner, in these coordinates.
    coordinates
        `spherical(states, actions)` or `softmax(states, actions)`.
    measure
        "coordinates" for exp(βR) dα, "policy" for exp(βR) dφ.
    """
    check_measure(measure, coordinates)
    if measure == "policy" and learner.name not in PLAIN:
        raise ValueError(
            f"measure 'policy' needs a learner with plain noise, one of {', '.join(PLAIN)}; {learner.name} has another."
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
