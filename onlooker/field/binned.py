"""ĝ on the cells of a box, from sums over cells: kernel regression as a few matrix products.

At a cell's centre x, with weights w = K_h(c − x) over cells c of n_c observations and gradient sums G_c:

* constant: ĝ = Σ w G / Σ w n, of bias O(h²) that feels the slope of the points' density;
* linear: the intercept of the weighted regression of G on c − x, which does not;
* fourth order: the same as constant with K = 2φ_h − φ_{√2h}, of bias O(h⁴).

Where fewer than ``enough`` effective neighbours ((Σwn)²/Σw²n) are in reach the bandwidth is widened, by factors of √2.
Variant and bandwidth are those that predict the rows held out best; all of it follows from the sums.
"""

import itertools
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.field.kernel_regression import LEAST_TOTAL, SLOPE_PENALTY, VARIANTS, solve_positive
from onlooker.field.memory import Bins

__all__ = ["Field", "evaluate", "fit_field", "levels", "scores"]

# Bandwidths in cells: √2 apart, up to a third of the box.
NARROWEST = 0.75
LARGEST_SHARE = 0.35


class Field(NamedTuple):
    """The gradient on the cells of a box.

    Attributes
    ----------
    gradient
        (cells…, dim).
    ess
        (cells…): effective neighbours behind it.
    widened
        (cells…): the bandwidth used there, in cells.
    choice
        Index of the variant and level that were chosen.
    error
        Mean squared error of the held-out gradients.
    """

    gradient: Array
    ess: Array
    widened: Array
    choice: Array
    error: Array


def levels(cells: int) -> np.ndarray:
    """The bandwidths tried, in cells."""
    count = int(np.ceil(2 * np.log2(LARGEST_SHARE * cells / NARROWEST))) + 1
    return NARROWEST * 2 ** (np.arange(count) / 2)


def _along(array: Array, matrices: list[Array]) -> Array:
    """One matrix along each of the leading axes."""
    for axis, matrix in enumerate(matrices):
        array = jnp.moveaxis(jnp.tensordot(matrix, array, axes=(1, axis), precision="highest"), 0, axis)
    return array


def _sums(count: Array, gradient: Array, bandwidth: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Σwn, Σw²n, ΣwG, Σw(c−x)n, Σw(c−x)(c−x)n, Σw(c−x)G at every cell, distances in bandwidths."""
    dim, cells = count.ndim, count.shape[0]
    away = (jnp.arange(cells)[None] - jnp.arange(cells)[:, None]) / bandwidth
    # A row's window is normalised on the lattice: narrow ones would otherwise weigh a cell by more than its share.
    window = jnp.exp(-0.5 * away**2)
    window = window / jnp.sum(jnp.exp(-0.5 * ((jnp.arange(2 * cells + 1) - cells) / bandwidth) ** 2))

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
    """The intercept of the regression on c − x, by moments about the neighbours' own mean."""
    safe = jnp.maximum(total, 1e-20)[..., None]
    middle, mean = first / safe, along / safe
    spread = second / safe[..., None] - middle[..., :, None] * middle[..., None, :]
    towards = across / safe[..., None] - middle[..., :, None] * mean[..., None, :]
    slope = solve_positive(spread + SLOPE_PENALTY * jnp.eye(first.shape[-1]), towards)
    return mean - jnp.einsum("...i,...ij->...j", middle, slope)


def _candidates(count: Array, gradient: Array, enough: float) -> tuple[Array, Array, Array]:
    """(variants, levels, cells…, dim) gradients, and (levels, cells…) ESS and bandwidth behind them, after widening."""
    bandwidths = jnp.asarray(levels(count.shape[0]), jnp.float32)
    total, squared, along, first, second, across = lax.map(lambda width: _sums(count, gradient, width), bandwidths)
    ess = total**2 / jnp.maximum(squared, 1e-30)
    constant = along / jnp.maximum(total, 1e-20)[..., None]
    # √2 times a level's bandwidth is the next level's.
    signed, signed_along = (2 * part[:-1] - part[1:] for part in (total, along))
    usable = signed > LEAST_TOTAL * total[:-1]
    fourth = jnp.where(usable[..., None], signed_along / jnp.where(usable, signed, 1)[..., None], constant[:-1])
    linear = _linear(total, along, first, second, across)
    gradients = jnp.stack([constant, linear, jnp.concatenate([fourth, constant[-1:]])], axis=1)
    # A line needs more neighbours than a mean. With the widest bandwidth whatever is in reach will do.
    reached = (ess >= enough * (1 + count.ndim)).at[-1].set(total[-1] > 1e-12)

    Level = tuple[Array, Array, Array]

    def widen(wider: Level, level: tuple[Array, Array, Array, Array]) -> tuple[Level, Level]:
        found, count_of, width, here = level
        kept = (
            jnp.where(here[None, ..., None], found, wider[0]),
            jnp.where(here, count_of, wider[1]),
            jnp.where(here, width, wider[2]),
        )
        return kept, kept

    nothing = (jnp.zeros_like(gradients[0]), jnp.zeros_like(count), jnp.full_like(count, bandwidths[-1]))
    _, (gradients, ess, widths) = lax.scan(widen, nothing, (gradients, ess, bandwidths, reached), reverse=True)
    return jnp.moveaxis(gradients, 1, 0), ess, widths


def scores(bins: Bins, enough: float) -> Array:
    """(variants, levels): mean squared error of the gradients held out."""
    candidates, _, _ = _candidates(bins.counts[0], bins.gradients[0], enough)
    axes = tuple(range(2, candidates.ndim))
    explained = 2 * jnp.sum(candidates * bins.gradients[1], axis=axes)
    length = jnp.sum(bins.counts[1][..., None] * candidates**2, axis=axes)
    return jnp.maximum(bins.squares[1] - explained + length, 0) / jnp.maximum(jnp.sum(bins.counts[1]), 1)


@partial(jax.jit, static_argnames=("enough", "variant"))
def fit_field(bins: Bins, enough: float, variant: str | None = None) -> Field:
    """The field of all rows, by the variant (unless it is given) and bandwidth that predict the held-out ones best."""
    errors = scores(bins, enough)
    if variant is not None:
        errors = jnp.where(jnp.arange(len(VARIANTS))[:, None] == VARIANTS.index(variant), errors, jnp.inf)
    best = jnp.argmin(jnp.where(jnp.isfinite(errors), errors, jnp.inf))
    row, column = jnp.unravel_index(best, errors.shape)
    gradients, ess, width = _candidates(bins.counts.sum(axis=0), bins.gradients.sum(axis=0), enough)
    return Field(gradients[row, column], ess[column], width[column], jnp.stack([row, column]), errors[row, column])


def evaluate(table: Array, share: Array) -> Array:
    """A table (cells…, dim) at a share of the box (dim,), linear between the centres of cells; flat at the edge."""
    dim, cells = len(share), table.shape[0]
    place = jnp.clip(share * cells - 0.5, 0, cells - 1)
    below = jnp.minimum(place.astype(jnp.int32), cells - 2)
    part = place - below
    value = jnp.zeros(table.shape[dim:], table.dtype)
    for corner in itertools.product((0, 1), repeat=dim):
        weight = jnp.prod(jnp.stack([part[i] if up else 1 - part[i] for i, up in enumerate(corner)]))
        value = value + weight * table[tuple(below[i] + up for i, up in enumerate(corner))]
    return value
