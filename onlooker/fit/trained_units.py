"""min over W, c, a, H, b of Σω|y − Hz − b − Σ aⱼ tanh(wⱼ·z + cⱼ) wⱼ|²_δ: units moved by Adam on batches of rows.

Where R varies along many directions, units that move to where R bends need a fraction of the number that random ones
do. Only their directions and offsets are kept: the head is solved exactly, as for all units. Units from different
starts err differently, so that their mean is better than each of them.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.fit.ridge_frame import Rows
from onlooker.fit.ridge_units import Units, bends

__all__ = ["trained"]

# Units, and rows of a batch.
UNITS, BATCH = 256, 1024
# One step for so many rows, but at least and at most so many, and products of rows, units and dimensions in all.
ROWS_PER_STEP, STEPS, MOST_PRODUCTS = 40, (500, 4000), 3e10
# Steps are compiled in runs of this length.
RUN = 250
# Adam's first step, the last as a share of it, the decays of its two means, and what is added to the root of squares.
RATE, LAST, DECAYS, LEAST = 0.015, 0.01, (0.9, 0.99), 1e-8
# Sharpness of units at first.
SHARPNESS = (0.7, 3.0)


class Numbers(NamedTuple):
    """W, c, a, H, b."""

    directions: Array
    offsets: Array
    head: Array
    curvature: Array
    level: Array


def trained(
    rows: Rows,
    precision: np.ndarray,
    metric: np.ndarray,
    affine: np.ndarray,
    seed: int,
    most_steps: int | None = None,
) -> Units:
    """Units (UNITS, dim + 1) that start at random.

    Parameters
    ----------
    rows
        Points z, gradients y and weights.
    precision
        δ.
    metric
        K (k, dim): units start along N(0, KᵀK).
    affine
        (dim, dim + 1): the gradient of the quadratic, which also moves.
    seed
        Seed of the start and of the batches.
    most_steps
        Number of steps at most.
    """
    generator, (count, dim) = np.random.default_rng(seed), rows.z.shape
    directions = generator.standard_normal((UNITS, len(metric))) @ metric
    low, high = np.log(SHARPNESS)
    sharp = np.exp(generator.uniform(low, high, UNITS))
    directions *= (sharp / np.linalg.norm(directions, axis=1))[:, None]
    offsets = -(rows.z[generator.integers(0, count, UNITS)] * directions).sum(axis=1)
    # In units of the noise, a step of one size suits all numbers.
    scale = np.sqrt(1 / precision.mean())
    start = directions, offsets, np.zeros(UNITS), affine[:, :-1] / scale, affine[:, -1] / scale
    numbers = Numbers(*(jnp.asarray(part, jnp.float32) for part in start))
    steps = int(np.clip(count / ROWS_PER_STEP, *STEPS))
    steps = min(steps, most_steps or steps, int(MOST_PRODUCTS / (BATCH * UNITS * dim)))
    # Any number of rows up to a power of two shares one compilation.
    size = 1 << (count - 1).bit_length()
    padded = [
        jnp.asarray(np.concatenate([part, np.zeros((size - count, *part.shape[1:]), np.float32)]))
        for part in (rows.z, rows.y / np.float32(scale), rows.weights)
    ]
    weight = jnp.asarray(precision / precision.mean(), jnp.float32)
    runs = max(1, round(steps / RUN))
    moving = Moving(numbers, *(jax.tree.map(jnp.zeros_like, numbers) for _ in range(2)))
    for turn in range(runs):
        key = jax.random.fold_in(jax.random.key(seed), turn)
        now = turn * RUN + np.arange(RUN)
        rates = RATE * (LAST + (1 - LAST) * 0.5 * (1 + np.cos(np.pi * now / (runs * RUN))))
        # Means that began at zero are too small at first.
        rates = rates * np.sqrt(1 - DECAYS[1] ** (now + 1)) / (1 - DECAYS[0] ** (now + 1))
        moving = _run(moving, padded, weight, jnp.int32(count), key, jnp.asarray(rates, jnp.float32))
    found = moving.numbers
    return bends(np.column_stack([np.asarray(found.directions, float), np.asarray(found.offsets, float)]))


class Moving(NamedTuple):
    """Numbers, and the means of their gradient and of its squares."""

    numbers: Numbers
    mean: Numbers
    square: Numbers


def half_loss(numbers: Numbers, rows: list[Array], precision: Array) -> Array:
    """½Σω|y − ŷ|²_δ/Σω."""
    (z, y, weights), (directions, offsets, head, curvature, level) = rows, numbers
    slopes = jnp.tanh(z @ directions.T + offsets[None])
    left = y - (slopes * head[None]) @ directions - z @ ((curvature + curvature.T) / 2) - level[None]
    return 0.5 * jnp.sum(weights * ((left * left) @ precision)) / jnp.sum(weights)


@partial(jax.jit, donate_argnums=0)
def _run(moving: Moving, rows: list[Array], precision: Array, count: Array, key: Array, rates: Array) -> Moving:
    """Steps of Adam (Kingma & Ba 2015) with these rates."""

    def step(moving: Moving, now: tuple[Array, Array]) -> tuple[Moving, None]:
        key, rate = now
        chosen = jax.random.randint(key, (BATCH,), 0, count)
        slope = jax.grad(half_loss)(moving.numbers, [part[chosen] for part in rows], precision)
        mean = jax.tree.map(lambda old, new: DECAYS[0] * old + (1 - DECAYS[0]) * new, moving.mean, slope)
        square = jax.tree.map(lambda old, new: DECAYS[1] * old + (1 - DECAYS[1]) * new**2, moving.square, slope)
        numbers = jax.tree.map(
            lambda number, by, size: number - rate * by / (jnp.sqrt(size) + LEAST), moving.numbers, mean, square
        )
        return Moving(numbers, mean, square), None

    return lax.scan(step, moving, (jax.random.split(key, len(rates)), rates))[0]
