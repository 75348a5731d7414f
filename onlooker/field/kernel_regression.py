"""ĝ(α) = Σ w_i g_i with w = K(α − θ_i)/Σ_l K(α − θ_l): the gradient at α from a pool of observations elsewhere.

Weights are taken in logarithms, so that they sum to one however far away the pool is: in 124 dimensions every
exp(−‖α − θ‖²/2σ²) is zero in any floating-point format. Over many chains both sums are matrix products.

`regress` does better with a pool that is remembered: it widens σ until enough neighbours count, and takes the intercept
of a local line, or signed weights of fourth order, instead of the mean.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from onlooker.kernels import Kernel

__all__ = ["VARIANTS", "Neighbours", "neighbours", "regress", "solve_positive"]

VARIANTS = ("constant", "linear", "fourth order")

# Squared distances cancel: on accelerators that multiply in shortened floats they would be noise.
PRECISION = lax.Precision.HIGHEST
# How often a bandwidth may be widened by √2 to reach enough neighbours.
WIDENINGS = 12
# A local slope is drawn towards zero by this share of a squared bandwidth, so that it is always determined.
SLOPE_PENALTY = 1e-3
# Signed weights may nearly cancel: below this share of the plain ones the plain ones are taken.
LEAST_TOTAL = 0.3


class Neighbours(NamedTuple):
    """A pool as seen from one position.

    Attributes
    ----------
    relative
        (L,): weights in units of the largest, or all zero when the kernel reaches no observation.
    total
        Their sum, or one.
    log_total
        log Σ K(α − θ_i)/K(0).
    ess
        (Σw)²/Σw²: how many of the pool count; 0 when none does.
    distance
        To the nearest.
    """

    relative: Array
    total: Array
    log_total: Array
    ess: Array
    distance: Array

    @property
    def weight(self) -> Array:
        """(L,): sums to one, or all zero."""
        return self.relative / self.total

    @property
    def empty(self) -> Array:
        return self.log_total == -jnp.inf

    def average(self, gradient: Array) -> Array:
        """Σ w_i g_i of gradients (L, dim), divided once instead of L times."""
        return jnp.matmul(self.relative, gradient, precision=PRECISION) / self.total


def neighbours(position: Array, point: Array, kernel: Kernel, bandwidth: float) -> Neighbours:
    """The pool ``point`` (L, dim) as seen from ``position`` (dim,), written for one chain."""
    dim = position.shape[-1]
    squared = _squared_distances(position, point)
    scaled = squared / bandwidth**2
    log_weight = kernel.log_at(scaled, dim) - kernel.log_at(jnp.zeros_like(scaled[0]), dim)
    top = jnp.max(log_weight)
    reached = top > -jnp.inf
    # Once: a CPU would take the exponentials again for every sum of them.
    relative = lax.optimization_barrier(jnp.where(reached, jnp.exp(log_weight - jnp.where(reached, top, 0)), 0))
    total = jnp.where(reached, jnp.sum(relative), 1)
    ess = jnp.where(reached, total * total / jnp.maximum(jnp.sum(relative * relative), 1e-30), 0)
    return Neighbours(relative, total, top + jnp.log(total), ess, jnp.sqrt(jnp.min(squared)))


def _squared_distances(position: Array, point: Array) -> Array:
    # A common offset would swamp the differences that ‖α‖² − 2α·θ + ‖θ‖² is made of.
    centre = _middle(point[0], point[len(point) // 2], point[-1])
    here, there = position - centre, point - centre
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
    """ĝ at ``position`` (dim,) from remembered observations, the ESS behind it, and the bandwidth it took.

    Parameters
    ----------
    point, gradient, kept
        (L, dim), (L, dim), and (L,) which of them are real.
    bandwidth
        σ of a Gaussian kernel, widened by factors of √2 until ``enough`` neighbours count, per coefficient.
    variant
        "constant", "linear" or "fourth order".
    """
    squared = jnp.where(kept, _squared_distances(position, point), jnp.inf)
    nearest = jnp.min(squared)
    # In units of the nearest one's weight, so that some are left however far away.
    away = jnp.where(kept, squared - jnp.where(jnp.isfinite(nearest), nearest, 0), jnp.inf)

    def weights(scale: Array) -> Array:
        return jnp.exp(-0.5 * away / (bandwidth * scale) ** 2)

    def ess(scale: Array) -> Array:
        weight = weights(scale)
        return jnp.sum(weight) ** 2 / jnp.maximum(jnp.sum(weight * weight), 1e-30)

    # A line needs as many for each of its coefficients.
    needed = enough * (1 + len(position)) if variant == "linear" else enough
    one = jnp.ones((), position.dtype)
    scale, counted = lax.while_loop(
        lambda now: (now[1] < needed) & (now[0] < 2 ** (WIDENINGS / 2)),
        lambda now: (now[0] * 2**0.5, ess(now[0] * 2**0.5)),
        (one, ess(one)),
    )
    weight = weights(scale)
    total = jnp.maximum(jnp.sum(weight), 1e-30)
    mean = jnp.matmul(weight, gradient, precision=PRECISION) / total
    if variant == "linear":
        mean = _intercept(weight / total, (point - position) / (bandwidth * scale), gradient, mean)
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
    """Of the weighted regression of gradients on displacements in bandwidths; weights sum to one."""
    middle = weight @ away
    spread = (away * weight[:, None]).T @ away - jnp.outer(middle, middle)
    slope = solve_positive(
        spread + SLOPE_PENALTY * jnp.eye(len(middle)), (away * weight[:, None]).T @ gradient - jnp.outer(middle, mean)
    )
    return mean - middle @ slope


def solve_positive(matrix: Array, right: Array) -> Array:
    """A⁻¹B for positive matrices (…, n, n) and (…, n, m), by elimination.

    n is small. In a compiled loop LAPACK's batched solver can wait for threads that wait for it.
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
    """The median of three: of a pool's members, one that is far out does not move it."""
    low, high = jnp.minimum(first, second), jnp.maximum(first, second)
    return jnp.maximum(low, jnp.minimum(high, third))
