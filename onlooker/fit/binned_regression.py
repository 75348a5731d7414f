"""ĝ on the cells of a box, from sums over cells: kernel regression as a few matrix products.

At a cell's centre x, with weights w = K_h(c − x) over cells c of n_c observations and gradient sums G_c:

* constant: ĝ = Σ w G / Σ w n, of bias O(h²) that feels the slope of the points' density;
* linear: the intercept of the weighted regression of G on c − x, which does not;
* fourth order: the same as constant with K = 2φ_h − φ_{√2h}, of bias O(h⁴).

Where there are fewer than ``enough`` effective neighbours, (Σwn)²/Σw²n, the bandwidth is widened by factors of √2.
Variant and bandwidth are those that predict the held-out rows best; everything is computed from the sums.
"""

import itertools
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.fit.kernel_regression import LEAST_TOTAL, SLOPE_PENALTY, VARIANTS, solve_positive
from onlooker.fit.memory import Bins

__all__ = ["Field", "evaluate", "fit_field", "levels", "scores"]

# Smallest bandwidth in cells: a narrower kernel sees a single cell.
NARROWEST = 0.75
# Largest bandwidth as a share of the box: beyond a third of it, the field is nearly constant.
LARGEST_SHARE = 0.35


class Field(NamedTuple):
    """The gradient on the cells of a box.

    Attributes
    ----------
    gradient
        ĝ, (cells…, dim).
    ess
        Effective number of neighbours, (cells…).
    widened
        Bandwidth used, in cells, (cells…).
    choice
        Indices of the chosen variant and bandwidth.
    error
        Mean squared error on the held-out gradients.
    """

    gradient: Array
    ess: Array
    widened: Array
    choice: Array
    error: Array


def levels(cells: int) -> np.ndarray:
    """The bandwidths tried, in cells, √2 apart."""
    count = int(np.ceil(2 * np.log2(LARGEST_SHARE * cells / NARROWEST))) + 1
    return NARROWEST * 2 ** (np.arange(count) / 2)


def _along(array: Array, matrices: list[Array]) -> Array:
    """Multiply each leading axis by a matrix."""
    for axis, matrix in enumerate(matrices):
        turned = jnp.tensordot(matrix.astype(array.dtype), array, axes=(1, axis), precision="highest")
        array = jnp.moveaxis(turned, 0, axis)
    return array


def _sums(count: Array, gradient: Array, bandwidth: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Σwn, Σw²n, ΣwG, Σw(c−x)n, Σw(c−x)(c−x)n, Σw(c−x)G at every cell, with distances in bandwidths."""
    dim, cells = count.ndim, count.shape[0]
    away = (jnp.arange(cells)[None] - jnp.arange(cells)[:, None]).astype(bandwidth.dtype) / bandwidth
    # Normalised on the lattice: a narrow window would otherwise give a cell more than its share.
    window = jnp.exp(-0.5 * away**2)
    lattice = (jnp.arange(2 * cells + 1) - cells).astype(bandwidth.dtype)
    window = window / jnp.sum(jnp.exp(-0.5 * (lattice / bandwidth) ** 2))

    def moments(array: Array, powers: tuple[int, ...]) -> Array:
        return _along(array, [window * away**power for power in powers])

    def unit(*axes: int) -> tuple[int, ...]:
        return tuple(axes.count(axis) for axis in range(dim))

    total = moments(count, unit())
    squared = _along(count, [window**2] * dim)
    along = moments(gradient, unit())
    first = jnp.stack([moments(count, unit(i)) for i in range(dim)], axis=-1)
    second = jnp.stack(
        [jnp.stack([moments(count, unit(i, j)) for j in range(dim)], axis=-1) for i in range(dim)], axis=-2
    )
    across = jnp.stack([moments(gradient, unit(i)) for i in range(dim)], axis=-2)
    return total, squared, along, first, second, across


def _linear(total: Array, along: Array, first: Array, second: Array, across: Array) -> Array:
    """Intercept of the regression on c − x, from moments about the neighbours' mean."""
    safe = jnp.maximum(total, 1e-20)[..., None]
    middle, mean = first / safe, along / safe
    spread = second / safe[..., None] - middle[..., :, None] * middle[..., None, :]
    towards = across / safe[..., None] - middle[..., :, None] * mean[..., None, :]
    penalty = SLOPE_PENALTY * jnp.eye(first.shape[-1], dtype=spread.dtype)
    slope = solve_positive(spread + jnp.broadcast_to(penalty, spread.shape), towards)
    return mean - jnp.einsum("...i,...ij->...j", middle, slope)


def _candidates(count: Array, gradient: Array, enough: float) -> tuple[Array, Array, Array]:
    """Gradients (variants, levels, cells…, dim), and their ESS and bandwidth (levels, cells…), after widening."""
    bandwidths = jnp.asarray(levels(count.shape[0]), jnp.float32)
    total, squared, along, first, second, across = lax.map(lambda width: _sums(count, gradient, width), bandwidths)
    ess = total**2 / jnp.maximum(squared, 1e-30)
    constant = along / jnp.maximum(total, 1e-20)[..., None]
    # The bandwidth of the next level is √2 times as large.
    signed, signed_along = (2 * part[:-1] - part[1:] for part in (total, along))
    usable = signed > LEAST_TOTAL * total[:-1]
    fourth = jnp.where(usable[..., None], signed_along / jnp.where(usable, signed, 1)[..., None], constant[:-1])
    linear = _linear(total, along, first, second, across)
    gradients = jnp.stack([constant, linear, jnp.concatenate([fourth, constant[-1:]])], axis=1)
    # A line needs more neighbours than a mean. At the widest bandwidth, any neighbour suffices.
    reached = (ess >= enough * (1 + count.ndim)).at[-1].set(total[-1] > 1e-12)

    Level = tuple[Array, Array, Array]

    def widen(wider: Level, level: tuple[Array, Array, Array, Array]) -> tuple[Level, Level]:
        fitted, neighbours, width, here = level
        kept = (
            jnp.where(here[None, ..., None], fitted, wider[0]),
            jnp.where(here, neighbours, wider[1]),
            jnp.where(here, width.astype(wider[2].dtype), wider[2]),
        )
        return kept, kept

    nothing = (jnp.zeros_like(gradients[0]), jnp.zeros_like(count), jnp.full_like(count, bandwidths[-1]))
    _, (gradients, ess, widths) = lax.scan(widen, nothing, (gradients, ess, bandwidths, reached), reverse=True)
    return jnp.moveaxis(gradients, 1, 0), ess, widths


def scores(bins: Bins, enough: float) -> Array:
    """Mean squared error on the held-out gradients, (variants, levels)."""
    candidates, _, _ = _candidates(bins.counts[0], bins.gradients[0], enough)
    axes = tuple(range(2, candidates.ndim))
    gradients, counts = bins.gradients[1][None, None], bins.counts[1][None, None, ..., None]
    explained = 2 * jnp.sum(candidates * gradients, axis=axes)
    length = jnp.sum(counts * candidates**2, axis=axes)
    return jnp.maximum(bins.squares[1] - explained + length, 0) / jnp.maximum(jnp.sum(bins.counts[1]), 1)


@partial(jax.jit, static_argnames=("enough", "variant"))
def fit_field(bins: Bins, enough: float, variant: str | None = None) -> Field:
    """The field of all rows, with the bandwidth, and the variant if not given, that predict held-out rows best."""
    errors = scores(bins, enough)
    if variant is not None:
        errors = jnp.where(jnp.arange(len(VARIANTS))[:, None] == VARIANTS.index(variant), errors, jnp.inf)
    best = jnp.argmin(jnp.where(jnp.isfinite(errors), errors, jnp.inf))
    row, column = jnp.unravel_index(best, errors.shape)
    gradients, ess, width = _candidates(bins.counts.sum(axis=0), bins.gradients.sum(axis=0), enough)
    return Field(gradients[row, column], ess[column], width[column], jnp.stack([row, column]), errors[row, column])


def evaluate(table: Array, share: Array) -> Array:
    """Interpolate a table (cells…, dim) linearly at a share (dim,) of the box; constant beyond the last centres."""
    dim, cells = len(share), table.shape[0]
    position = jnp.clip(share * cells - 0.5, 0, cells - 1)
    below = jnp.minimum(position.astype(jnp.int32), cells - 2)
    part = position - below.astype(position.dtype)
    value = jnp.zeros(table.shape[dim:], table.dtype)
    for corner in itertools.product((0, 1), repeat=dim):
        weight = jnp.prod(jnp.stack([part[i] if up else 1 - part[i] for i, up in enumerate(corner)]))
        value = value + weight * table[tuple(below[i] + up for i, up in enumerate(corner))]
    return value
