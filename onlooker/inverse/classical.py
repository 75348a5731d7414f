"""α ← α + μ(β/2) g(α) + √μ w, which samples exp(βR) up to O(μ).

The benchmark: Langevin dynamics with the gradient at the chain's own position (`eq:classical_langevin`).
"""

import math

import jax.numpy as jnp
from jax import Array

from onlooker.check import check_positive
from onlooker.inverse.base import Info, InverseLearner
from onlooker.inverse.confine import Confine, nowhere
from onlooker.observe.observation import Observation

__all__ = ["classical"]


def classical(*, step_size: float, beta: float = 1.0, confine: Confine = nowhere) -> InverseLearner:
    """Classical Langevin dynamics on answered questions.

    Parameters
    ----------
    step_size
        μ.
    beta
        β, the inverse temperature.
    confine
        Keeps the chain in a region; by default nowhere does.
    """
    check_positive(step_size=step_size, beta=beta)
    root = math.sqrt(step_size)

    def step(position: Array, evidence: Observation, noise: Array) -> tuple[Array, Info]:
        drift = step_size * (beta / 2 * evidence.gradient)
        position, projected = confine(position, drift + root * noise[0])
        return position, Info(jnp.ones_like(projected), jnp.zeros_like(projected), projected)

    return InverseLearner("classical", step, {"step_size": step_size, "beta": beta}, asks=True)
