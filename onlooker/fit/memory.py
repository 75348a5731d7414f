"""Bounded memories of observations: the most recent ones, a uniform sample of all, or sums over cells.

Each is two pure functions, so that a learner can carry its state through a compiled loop: ``init(dim)``, and
``add(state, observations, count)`` for the first ``count`` rows of a block.

* `ring(size)` keeps the last ``size`` observations.
* `reservoir(size)` keeps a uniform sample of all observations: row t goes to a random one of t + 1 slots, if that slot
  exists.
* `binned(low, high)` keeps Σ1 and Σg per cell of a box, in up to three dimensions: all of the past in O(cells). One row
  in five, by stretches, is summed separately, to choose a bandwidth.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.settings import check_share, check_whole
from onlooker.data.observations import Observation
from onlooker.data.splits import in_held_stretch
from onlooker.fit.box import CELLS

__all__ = ["Bins", "Cloud", "Memory", "binned", "reservoir", "ring"]

# Rows in a stretch of the stream; every fifth stretch is held out, since consecutive rows are alike.
STRETCH = 1000
# Interpolation between cells needs a few of them.
FEWEST_CELLS = 4


class Cloud(NamedTuple):
    """Remembered points and gradients (size, dim), of which the first ``filled`` are set; ``seen`` counts all rows."""

    point: Array
    gradient: Array
    seen: Array

    @property
    def filled(self) -> Array:
        return jnp.minimum(self.seen, len(self.point))


class Bins(NamedTuple):
    """Sums over cells, for the training rows and the held-out rows.

    Attributes
    ----------
    counts
        Σ1, (2, cells…).
    gradients
        Σg, (2, cells…, dim).
    squares
        Σ‖g‖² of rows in the box, (2,).
    seen
        Number of rows added.
    outside
        Number of rows outside the box.
    """

    counts: Array
    gradients: Array
    squares: Array
    seen: Array
    outside: Array


class Memory(NamedTuple):
    """A way to remember.

    Attributes
    ----------
    name
        "ring", "reservoir" or "binned".
    init
        ``init(dim)`` returns an empty state.
    add
        ``add(state, observations, count, held=None)`` adds the first ``count`` rows of a block; ``held`` says which are
        held out.
    numbers
        ``numbers(dim)``: number of values in the state.
    low
        Lower corner of the box of "binned".
    high
        Upper corner of the box of "binned".
    """

    name: str
    init: Callable[[int], Any]
    add: Callable[..., Any]
    numbers: Callable[[int], int]
    low: np.ndarray | None = None
    high: np.ndarray | None = None


def _empty_cloud(size: int) -> Callable[[int], Cloud]:
    return lambda dim: Cloud(jnp.zeros((size, dim)), jnp.zeros((size, dim)), jnp.zeros((), jnp.int32))


def _cloud(name: str, size: int, slots: Callable[[Array, Array], Array]) -> Memory:
    """A memory of points; ``slots(row numbers, seen)`` returns the slots of rows, ``size`` or more to drop them."""

    def add(state: Cloud, observations: Observation, count: Array, held: Array | None = None) -> Cloud:
        rows = jnp.arange(len(observations.point))
        slot = jnp.where(rows < count, slots(state.seen + rows, state.seen), size)
        # If several rows go to one slot, the last is kept, on every machine.
        last = jnp.full(size, -1).at[slot].max(rows, mode="drop")
        fresh = (last >= 0)[:, None]
        point = jnp.where(fresh, observations.point[last], state.point)
        gradient = jnp.where(fresh, observations.gradient[last], state.gradient)
        return Cloud(point, gradient, state.seen + count)

    return Memory(name, _empty_cloud(size), add, lambda dim: 2 * size * dim)


def ring(size: int) -> Memory:
    """The last ``size`` observations."""
    check_whole(size=size)
    return _cloud("ring", int(size), lambda number, seen: number % size)


def reservoir(size: int, seed: int = 0) -> Memory:
    """A uniform sample of ``size`` of all observations."""
    check_whole(size=size)

    def slots(number: Array, seen: Array) -> Array:
        drawn = jax.random.randint(jax.random.fold_in(jax.random.key(seed), seen), number.shape, 0, number + 1)
        return jnp.where(number < size, number, drawn)

    return _cloud("reservoir", int(size), slots)


def binned(
    low: Sequence[float], high: Sequence[float], cells: int | None = None, forgetting: float | None = None
) -> Memory:
    """Sums over the cells of a box.

    Parameters
    ----------
    low
        Lower corner of the box, in up to three dimensions. Rows outside are counted, not kept.
    high
        Upper corner.
    cells
        Number of cells per axis.
    forgetting
        Share of its weight that a row loses with each later one; ``None`` for none.
    """
    bottom, top = np.asarray(low, float), np.asarray(high, float)
    dim = len(bottom)
    if bottom.shape != top.shape or dim not in CELLS or not (bottom < top).all():
        raise ValueError(f"low is {low} and high {high}; give the corners of a box in one, two or three dimensions.")
    check_share(forgetting=forgetting)
    left = 1.0 if forgetting is None else 1.0 - forgetting
    check_whole(cells=CELLS[dim] if cells is None else cells)
    size = CELLS[dim] if cells is None else int(cells)
    if size < FEWEST_CELLS:
        raise ValueError(f"cells is {cells}; give at least {FEWEST_CELLS} per axis.")

    def init(dim: int) -> Bins:
        shape = (2,) + (size,) * dim
        zero = jnp.zeros((), jnp.int32)
        return Bins(jnp.zeros(shape), jnp.zeros((*shape, dim)), jnp.zeros(2), zero, zero)

    def add(state: Bins, observations: Observation, count: Array, held: Array | None = None) -> Bins:
        rows = jnp.arange(len(observations.point), dtype=count.dtype)
        low, width = (jnp.float32(end).astype(observations.point.dtype) for end in (bottom, top - bottom))
        share = (observations.point - low[None]) / width[None]
        inside = jnp.all((share >= 0) & (share < 1), axis=1)
        kept = inside & (rows < count)
        if held is None:
            held = in_held_stretch(state.seen + rows, STRETCH)
        fold = held.astype(jnp.int32)
        # Index ``size`` is out of range, and dropped.
        cell = jnp.where(kept[:, None], (share * size).astype(jnp.int32), size)
        at = (fold, *cell.T)
        weight = left ** jnp.maximum(count - 1 - rows, 0).astype(jnp.float32)
        weight = weight.astype(state.counts.dtype)
        older = (left ** count.astype(jnp.float32)).astype(state.counts.dtype)
        square = jnp.where(kept, weight * jnp.sum(observations.gradient**2, axis=1), 0)
        return Bins(
            (older * state.counts).at[at].add(weight, mode="drop"),
            (older * state.gradients).at[at].add(weight[:, None] * observations.gradient, mode="drop"),
            older * state.squares + jnp.zeros(2).at[fold].add(square),
            state.seen + count,
            state.outside + jnp.sum((rows < count) & ~inside, dtype=state.outside.dtype),
        )

    return Memory("binned", init, add, lambda dim: 2 * size**dim * (1 + dim), bottom, top)
