"""ĝ(α) = Σ w_i g_i with w = K(α − θ_i)/Σ_l K(α − θ_l): the gradient at α from a pool of observations elsewhere.

Weights are taken in logarithms, so that they sum to one however far away the pool is: in 124 dimensions every
exp(−‖α − θ‖²/2σ²) is zero in any floating-point format. Over many chains both sums are matrix products.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from onlooker.kernels import Kernel

__all__ = ["Neighbours", "neighbours"]

# Squared distances cancel: on accelerators that multiply in shortened floats they would be noise.
PRECISION = lax.Precision.HIGHEST


class Neighbours(NamedTuple):
    """A pool as seen from one position.

    Attributes
    ----------
    weight
        (L,): sums to one, or all zero when the kernel reaches no observation.
    log_total
        log Σ K(α − θ_i)/K(0).
    ess
        (Σw)²/Σw²: how many of the pool count; 0 when none does.
    distance
        To the nearest.
    """

    weight: Array
    log_total: Array
    ess: Array
    distance: Array

    @property
    def empty(self) -> Array:
        return self.log_total == -jnp.inf

    def average(self, gradient: Array) -> Array:
        """Σ w_i g_i of gradients (L, dim)."""
        return jnp.matmul(self.weight, gradient, precision=PRECISION)


def neighbours(position: Array, point: Array, kernel: Kernel, bandwidth: float) -> Neighbours:
    """The pool ``point`` (L, dim) as seen from ``position`` (dim,), written for one chain."""
    dim = position.shape[-1]
    # A common offset would swamp the differences that ‖α‖² − 2α·θ + ‖θ‖² is made of.
    centre = _middle(point[0], point[len(point) // 2], point[-1])
    here, there = position - centre, point - centre
    across = jnp.matmul(there, here, precision=PRECISION)
    squared = jnp.maximum(jnp.sum(here * here) - 2 * across + jnp.sum(there * there, axis=-1), 0)
    scaled = squared / bandwidth**2
    log_weight = kernel.log_at(scaled, dim) - kernel.log_at(jnp.zeros_like(scaled[0]), dim)
    top = jnp.max(log_weight)
    reached = top > -jnp.inf
    weight = jnp.where(reached, jnp.exp(log_weight - jnp.where(reached, top, 0)), 0)
    total = jnp.where(reached, jnp.sum(weight), 1)
    ess = jnp.where(reached, total * total / jnp.maximum(jnp.sum(weight * weight), 1e-30), 0)
    return Neighbours(weight / total, top + jnp.log(total), ess, jnp.sqrt(jnp.min(squared)))


def _middle(first: Array, second: Array, third: Array) -> Array:
    """The median of three: of a pool's members, one that is far out does not move it."""
    low, high = jnp.minimum(first, second), jnp.maximum(first, second)
    return jnp.maximum(low, jnp.minimum(high, third))
