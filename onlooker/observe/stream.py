"""A stream of evidence: what run.py hands the chains, a block of steps at a time.

Evidence is a pytree whose leaves lead with the step axis. A *shared* stream is seen by all chains at once, its
observations are (steps, dim); otherwise every chain has a stream of its own on the last axis, (steps, dim, chains).
A stream of *pools* has (steps, L, dim) instead of (steps, dim). A stream that *answers* draws only the randomness ξ;
the evidence follows from it and a point of the chain's own choosing in ``answer(point, ξ)``.

A block is always drawn whole, from its own key, so where a run stops never changes what it sees.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.check import check_whole
from onlooker.observe.observation import Observation, Observations

__all__ = ["LONGEST_BLOCK", "Stream", "oracle", "pooled", "recorded", "simulated"]

# Steps in a block, at the most.
LONGEST_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Stream:
    """Where evidence comes from.

    Attributes
    ----------
    dim
        Dimension of the points.
    init
        ``init(data, key, lanes) -> carry``: what the stream remembers from block to block.
    draw
        ``draw(data, carry, key, steps, lanes) -> (carry, evidence)`` for a whole block.
    data
        Arrays the stream reads from, passed through jit as arguments.
    shared
        One stream for all chains, or one per chain.
    answer
        For a stream that answers: ``answer(point, ξ) -> evidence``, for one chain.
    length
        Steps available; ``None`` when endless.
    observations
        What a recorded stream was made from.
    pool
        L, how many observations a step's pool has; ``None`` for a stream of single observations.
    shown
        How many of the pool are shown, for a simulator that leaves out those too far to count.
    numbers
        How many numbers a step takes for one chain; by default a point's and a gradient's for each observation.
    failures
        For answers from a Python function: what it raised. ``None`` when they are not.
    """

    dim: int
    init: Callable[[Any, Array, int | None], Any]
    draw: Callable[[Any, Any, Array, int, int | None], tuple[Any, Any]]
    data: Any = ()
    shared: bool = True
    answer: Callable[[Array, Any], Any] | None = None
    length: int | None = None
    observations: Observations | None = None
    pool: int | None = None
    shown: int | None = None
    numbers: int = 0
    failures: list[Exception] | None = None

    def __post_init__(self) -> None:
        if not self.numbers:
            object.__setattr__(self, "numbers", 2 * self.dim * (self.pool or 1))


def recorded(observations: Observations, dtype: Any = jnp.float32) -> Stream:
    """Observations that were written down, in their order, shared by all chains."""

    def init(data: Observation, key: Array, lanes: int | None) -> Array:
        return jnp.zeros((), jnp.int32)

    # Copies of NumPy's making: on a CPU JAX looks at the caller's own memory, if only until it has read it.
    copies = (np.array(part, dtype) for part in (observations.points, observations.gradients))
    data = Observation(*map(jnp.asarray, copies))
    return Stream(observations.dim, init, _read, data, length=len(observations), observations=observations)


def _read(data: Observation, row: Array, key: Array, steps: int, lanes: int | None) -> tuple[Array, Observation]:
    """The next rows; past the end, where nothing is counted, the last one again."""
    count = len(data.point)

    def whole() -> Observation:
        return jax.tree.map(lambda rows: lax.dynamic_slice_in_dim(rows, row, steps), data)

    def ending() -> Observation:
        return jax.tree.map(lambda rows: rows[jnp.minimum(row + jnp.arange(steps), count - 1)], data)

    return row + steps, ending() if steps > count else lax.cond(row + steps <= count, whole, ending)


def pooled(stream: Stream, size: int) -> Stream:
    """Pools of the next ``size`` observations of a stream, none of them in two pools.

    A pool must mix many agents: interleave them, shuffle the rows, or have learners drawn anew. One agent's
    consecutive rows are one place seen ``size`` times.

    Examples
    --------
    >>> from onlooker import observe
    >>> stream = recorded(observe(np.zeros((1000, 2)), np.ones((1000, 2))))
    >>> stream.length, pooled(stream, 30).length  # ten rows are left over
    (1000, 33)
    """
    if not isinstance(stream, Stream):
        raise TypeError(f"stream is {type(stream).__name__}; make a stream with recorded(observations).")
    check_whole(size=size)
    size = int(size)
    if stream.answer is not None or stream.pool is not None:
        raise ValueError("stream is already one of pools or of answers; pool a stream of single observations.")
    if stream.length is not None and size > stream.length:
        raise ValueError(f"size is {size} but the stream holds {stream.length} observations; make smaller pools.")

    length = None if stream.length is None else stream.length // size
    return replace(stream, draw=_PooledDraw(stream.draw, size), length=length, pool=size, numbers=0)


@dataclass(frozen=True)
class _PooledDraw:
    """``size`` observations a step. Equal ones are equal, so that what was compiled for one serves the next."""

    draw: Callable[[Any, Any, Array, int, int | None], tuple[Any, Any]]
    size: int

    def __call__(self, data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Any]:
        carry, evidence = self.draw(data, carry, key, steps * self.size, lanes)
        return carry, jax.tree.map(lambda leaf: leaf.reshape(steps, self.size, *leaf.shape[1:]), evidence)


def simulated(
    dim: int,
    draw: Callable[[Any, Any, Array, int, int | None], tuple[Any, Any]],
    *,
    init: Callable[[Any, Array, int | None], Any] = lambda data, key, lanes: (),
    data: Any = (),
    shared: bool = False,
    answer: Callable[[Array, Any], Any] | None = None,
    pool: int | None = None,
    shown: int | None = None,
    numbers: int = 0,
) -> Stream:
    """An endless simulated stream."""
    return Stream(dim, init, draw, data, shared, answer, pool=pool, shown=shown, numbers=numbers)


def oracle(gradient: Callable[[np.ndarray], Any], dim: int) -> Stream:
    """Questions to any Python function, for `classical` and `active`.

    Parameters
    ----------
    gradient
        ``gradient(points)``, from NumPy points (chains, dim) to ascent gradients (chains, dim), noisy or not. It is
        called once per step, for all chains; its randomness is its own, not the run's seed's.
    dim
        Dimension of the points.
    """
    check_whole(dim=dim)
    if not callable(gradient):
        raise TypeError(f"gradient is {type(gradient).__name__}; give a function from points to gradients.")
    failures: list[Exception] = []

    def draw(data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Array]:
        return carry, jnp.zeros((steps, lanes))

    def asked(points: Any) -> np.ndarray:
        points = np.asarray(points)
        try:
            answers = _checked_answers(gradient(points.reshape(-1, dim)), (points.size // dim, dim))
        except Exception as error:
            failures.append(error)
            raise
        return answers.reshape(points.shape).astype(points.dtype)

    def answer(point: Array, nothing: Array) -> Observation:
        shape = jax.ShapeDtypeStruct(point.shape, point.dtype)
        return Observation(point, jax.pure_callback(asked, shape, point, vmap_method="expand_dims"))

    return replace(simulated(dim, draw, answer=answer), failures=failures)


def _checked_answers(answers: Any, shape: tuple[int, int]) -> np.ndarray:
    array = np.asarray(answers)
    if array.shape != shape:
        raise ValueError(
            f"gradient answered with shape {array.shape} to points of shape {shape}; give one gradient per point."
        )
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"gradient answered with numbers of type {array.dtype}; answer with real ones.")
    lost = int(np.count_nonzero(~np.isfinite(array).all(axis=1)))
    if lost:
        raise ValueError(
            f"gradient answered with a NaN or an infinity at {lost} of {len(array)} points; answer with finite ones."
        )
    return array
