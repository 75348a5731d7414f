"""ĝ(α) = Σ w_i g_i with w = K(α − θ_i)/Σ_l K(α − θ_l): the gradient at α from a pool of observations elsewhere.

Weights are computed in log space, so that they sum to one however far away the pool is: in 124 dimensions every
exp(−‖α − θ‖²/2σ²) underflows. Over many chains both sums are matrix products.

`regress` improves on this for a pool in memory: it widens σ until enough neighbours count, and uses the intercept of a
local line, or signed weights of fourth order, instead of the mean.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from onlooker.core.kernels import Kernel

__all__ = ["VARIANTS", "Neighbours", "neighbours", "regress", "solve_positive"]

VARIANTS = ("constant", "linear", "fourth order")

# Squared distances cancel: with the reduced precision of accelerators' matrix products they would be noise.
PRECISION = lax.Precision.HIGHEST
# Largest number of widenings by √2 to reach enough neighbours: up to 64 times the bandwidth.
WIDENINGS = 12
# Ridge penalty on a local slope, in squared bandwidths: makes it determined everywhere.
SLOPE_PENALTY = 1e-3
# Signed weights may nearly cancel: below this share of the plain weights, the plain ones are used.
LEAST_TOTAL = 0.3


class Neighbours(NamedTuple):
    """Kernel weights of a pool at one position.

    Attributes
    ----------
    relative
        Weights (L,) in units of the largest; all zero if the kernel reaches no observation.
    total
        Their sum, or one if all are zero.
    log_total
        log Σ K(α − θ_i)/K(0).
    ess
        Effective number of neighbours, (Σw)²/Σw²; 0 if there are none.
    distance
        Distance to the nearest observation.
    """

    relative: Array
    total: Array
    log_total: Array
    ess: Array
    distance: Array

    @property
    def weight(self) -> Array:
        """Normalised weights (L,), of sum one, or all zero."""
        return self.relative / self.total

    @property
    def empty(self) -> Array:
        return self.log_total == -jnp.inf

    def average(self, gradient: Array) -> Array:
        """Σ w_i g_i of gradients (L, dim), divided once instead of L times."""
        return jnp.matmul(self.relative, gradient, precision=PRECISION) / self.total


def neighbours(position: Array, point: Array, kernel: Kernel, bandwidth: float) -> Neighbours:
    """Weights of the pool ``point`` (L, dim) at the ``position`` (dim,) of one chain."""
    dim = position.shape[-1]
    squared = _squared_distances(position, point)
    scaled = squared / bandwidth**2
    log_weight = kernel.log_at(scaled, dim) - kernel.log_at(jnp.zeros_like(scaled[0]), dim)
    top = jnp.max(log_weight)
    reached = top > -jnp.inf
    # The barrier stops XLA on a CPU from recomputing the exponentials for every sum of them.
    relative = lax.optimization_barrier(jnp.where(reached, jnp.exp(log_weight - jnp.where(reached, top, 0)), 0))
    total = jnp.where(reached, jnp.sum(relative), 1)
    ess = jnp.where(reached, total * total / jnp.maximum(jnp.sum(relative * relative), 1e-30), 0)
    return Neighbours(relative, total, top + jnp.log(total), ess, jnp.sqrt(jnp.min(squared)))


def _squared_distances(position: Array, point: Array) -> Array:
    # Centred, because a common offset would swamp the differences in ‖α‖² − 2α·θ + ‖θ‖².
    centre = _middle(point[0], point[len(point) // 2], point[-1])
    here, there = position - centre, point - centre[None]
    across = jnp.matmul(there, here, precision=PRECISION)
    return jnp.maximum(jnp.sum(here * here) - 2 * across + jnp.sum(there * there, axis=-1), 0)


def regress(
    position: Array,
    point: Array,
    gradient: Array,
    kept: Array,
    bandwidth: Array | float,
    variant: str = "linear",
    enough: float = 10.0,
) -> tuple[Array, Array, Array]:
    """ĝ at a position from observations in memory, its effective number of neighbours, and the bandwidth used.

    Parameters
    ----------
    position
        Position (dim,).
    point
        Points (L, dim) in memory.
    gradient
        Gradients (L, dim) in memory.
    kept
        Which entries (L,) of the memory are filled.
    bandwidth
        σ of a Gaussian kernel before widening.
    variant
        "constant", "linear" or "fourth order".
    enough
        σ is widened by factors of √2 until the effective number of neighbours per coefficient is at least this.
    """
    squared = jnp.where(kept, _squared_distances(position, point), jnp.inf)
    nearest = jnp.min(squared)
    # In units of the nearest one's weight, so that not all weights underflow.
    away = jnp.where(kept, squared - jnp.where(jnp.isfinite(nearest), nearest, 0), jnp.inf)

    def weights(scale: Array) -> Array:
        return jnp.exp(-0.5 * away / (bandwidth * scale) ** 2)

    def ess(scale: Array) -> Array:
        weight = weights(scale)
        return jnp.sum(weight) ** 2 / jnp.maximum(jnp.sum(weight * weight), 1e-30)

    # A line needs this number for each of its coefficients.
    needed = enough * (1 + len(position)) if variant == "linear" else enough
    unit = jnp.ones((), position.dtype)
    scale, counted = lax.while_loop(
        lambda now: (now[1] < needed) & (now[0] < 2 ** (WIDENINGS / 2)),
        lambda now: (now[0] * 2**0.5, ess(now[0] * 2**0.5)),
        (unit, ess(unit)),
    )
    weight = weights(scale)
    total = jnp.maximum(jnp.sum(weight), 1e-30)
    mean = jnp.matmul(weight, gradient, precision=PRECISION) / total
    if variant == "linear":
        mean = _intercept(weight / total, (point - position[None]) / (bandwidth * scale), gradient, mean)
    elif variant == "fourth order":
        # φ_√2σ in the units of φ_σ's nearest weight.
        apart = jnp.exp(0.25 * jnp.where(jnp.isfinite(nearest), nearest, 0) / (bandwidth * scale) ** 2)
        signed = 2 * weight - 2 ** (-len(position) / 2) * jnp.minimum(apart, 1e6) * weights(jnp.sqrt(2.0) * scale)
        sum_signed = jnp.sum(signed)
        usable = sum_signed > LEAST_TOTAL * total
        fourth = jnp.matmul(signed, gradient, precision=PRECISION) / jnp.where(usable, sum_signed, 1)
        mean = jnp.where(usable, fourth, mean)
    return mean, counted, bandwidth * scale


def _intercept(weight: Array, away: Array, gradient: Array, mean: Array) -> Array:
    """Intercept of the weighted regression of gradients on displacements in bandwidths; weights sum to one."""
    middle = weight @ away
    spread = (away * weight[:, None]).T @ away - jnp.outer(middle, middle)
    slope = solve_positive(
        spread + SLOPE_PENALTY * jnp.eye(len(middle)), (away * weight[:, None]).T @ gradient - jnp.outer(middle, mean)
    )
    return mean - middle @ slope


def solve_positive(matrix: Array, right: Array) -> Array:
    """A⁻¹B for positive definite A (…, n, n) of small n and B (…, n, m), by elimination.

    LAPACK's batched solver can deadlock with its own threads inside a compiled loop.
    """
    joined = jnp.concatenate([matrix, right], axis=-1)
    size = matrix.shape[-1]

    def eliminate(row: Array, joined: Array) -> Array:
        pivot = lax.dynamic_index_in_dim(joined, row, axis=-2)
        pivot = pivot / lax.dynamic_index_in_dim(pivot, row, axis=-1)
        factor = lax.dynamic_index_in_dim(joined, row, axis=-1)
        others = joined - factor * pivot
        return jnp.where(jnp.arange(size)[:, None] == row, pivot, others)

    return lax.fori_loop(0, size, eliminate, joined)[..., size:]


def _middle(first: Array, second: Array, third: Array) -> Array:
    """The median of three, which one outlier does not move."""
    low, high = jnp.minimum(first, second), jnp.maximum(first, second)
    return jnp.maximum(low, jnp.minimum(high, third))
