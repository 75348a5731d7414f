"""α ← α + μ(β/2) g(α) + √μ w, which samples exp(βR) up to O(μ).

The benchmark: Langevin dynamics with the gradient at the chain's own position (`eq:classical_langevin`).
"""

import math

import jax.numpy as jnp
from jax import Array

from onlooker.core.settings import check_positive
from onlooker.data.observations import Observation
from onlooker.inverse.base import Info, InverseLearner
from onlooker.inverse.confine import Confine, nowhere
from onlooker.inverse.examples import Example, answers

__all__ = ["classical", "examples"]


def classical(*, step_size: float, beta: float = 1.0, confine: Confine = nowhere) -> InverseLearner:
    """Classical Langevin dynamics, for a stream that answers questions.

    Parameters
    ----------
    step_size
        μ.
    beta
        β, the inverse temperature.
    confine
        Keeps the chain in a region; default: unconfined.
    """
    check_positive(step_size=step_size, beta=beta)
    root = math.sqrt(step_size)

    def step(position: Array, evidence: Observation, noise: Array) -> tuple[Array, Info]:
        drift = step_size * (beta / 2 * evidence.gradient)
        position, projected = confine(position, drift + root * noise[0])
        return position, Info(jnp.ones_like(projected), jnp.zeros_like(projected), projected)

    settings = {"step_size": step_size, "beta": beta}
    return InverseLearner("classical", step, settings, evidence="answers", plain_noise=True)


def examples() -> dict[str, Example]:
    return {"classical": Example(lambda: classical(step_size=1e-2), answers)}
