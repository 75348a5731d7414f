"""A stream of evidence, which `run` passes to the chains one block of steps at a time.

Evidence is a pytree whose leaves have the step axis first. The observations of a *shared* stream are (steps, dim), the
same for all chains; otherwise every chain has its own on the last axis, (steps, dim, chains). A stream of *pools* has
(steps, L, dim) instead of (steps, dim). A stream that *answers* draws the randomness ξ only; the evidence at a
point that the chain chooses is ``answer(point, ξ)``.

A block is always drawn whole, from its own key, so where a run stops never changes what it sees.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.core.settings import check_whole
from onlooker.data.observations import Observation, Observations
from onlooker.storage.signature import array_parts, digest_of

__all__ = ["LONGEST_BLOCK", "Stream", "oracle", "pooled", "recorded", "simulated"]

# Largest number of steps in a block.
LONGEST_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Stream:
    """A source of evidence.

    Attributes
    ----------
    dim
        Dimension of the points.
    init
        ``init(data, key, lanes) -> carry``: the stream's state, passed from block to block.
    draw
        ``draw(data, carry, key, steps, lanes) -> (carry, evidence)`` for a whole block.
    data
        Arrays the stream reads from, passed through jit as arguments.
    shared
        Whether all chains see the same stream; otherwise each has its own.
    answer
        For a stream that answers: ``answer(point, ξ) -> evidence``, for one chain.
    length
        The number of steps; ``None`` if endless.
    observations
        The observations of a recorded stream.
    pool
        L, the number of observations in a pool; ``None`` for a stream of single observations.
    shown
        The number of a pool's observations that are shown; a simulator may leave out those too far to matter.
    numbers
        The size of one step's evidence for one chain; default: a point and a gradient for each observation.
    failures
        The exceptions that a Python function raised when asked; ``None`` for any other stream.
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

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the data, computed once; it identifies a run's data."""
        return digest_of(array_parts(map(np.asarray, jax.tree.leaves(self.data)))).hexdigest()


def recorded(observations: Observations, dtype: Any = jnp.float32) -> Stream:
    """A stream of recorded observations, in their order, shared by all chains."""
    if not len(observations):
        raise ValueError("observations is empty: no row was finite; there is nothing to run on.")

    def init(data: Observation, key: Array, lanes: int | None) -> Array:
        return jnp.zeros((), jnp.int32)

    # NumPy copies first: on a CPU, JAX may read the caller's memory later, when the caller has changed it.
    copies = (np.array(part, dtype) for part in (observations.points, observations.gradients))
    data = Observation(*map(jnp.asarray, copies))
    return Stream(observations.dim, init, _read, data, length=len(observations), observations=observations)


def _read(data: Observation, row: Array, key: Array, steps: int, lanes: int | None) -> tuple[Array, Observation]:
    """The next rows. Past the end, where steps are not counted, the last row is repeated."""
    count = len(data.point)

    def whole() -> Observation:
        return jax.tree.map(lambda rows: lax.dynamic_slice_in_dim(rows, row, steps), data)

    def ending() -> Observation:
        return jax.tree.map(lambda rows: rows[jnp.minimum(row + jnp.arange(steps, dtype=row.dtype), count - 1)], data)

    return row + steps, ending() if steps > count else lax.cond(row + steps <= count, whole, ending)


def pooled(stream: Stream, size: int) -> Stream:
    """Pool every ``size`` successive observations of a stream; no observation is in two pools.

    A pool must mix many agents: interleave them, shuffle the rows, or draw every point from π. Consecutive rows of one
    agent are nearly the same point ``size`` times.

    Examples
    --------
    >>> from onlooker import observe
    >>> stream = recorded(observe(np.zeros((1000, 2)), np.ones((1000, 2))))
    >>> stream.length, pooled(stream, 30).length  # ten rows are left over
    (1000, 33)
    """
    if not isinstance(stream, Stream):
        raise TypeError(f"stream is of type {type(stream).__name__}; make a stream with recorded(observations).")
    check_whole(size=size)
    size = int(size)
    if stream.answer is not None or stream.pool is not None:
        raise ValueError("stream already has pools, or answers questions; give a stream of single observations.")
    if stream.length is not None and size > stream.length:
        raise ValueError(f"size is {size} but the stream has {stream.length} observations; give a smaller size.")

    length = None if stream.length is None else stream.length // size
    return replace(stream, draw=_PooledDraw(stream.draw, size), length=length, pool=size, numbers=0)


@dataclass(frozen=True)
class _PooledDraw:
    """Draw ``size`` observations per step. Compared by value, so that equal pools share compiled code."""

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
    """A stream that asks a Python function for gradients, for `classical` and `active`.

    Parameters
    ----------
    gradient
        ``gradient(points)``, from NumPy points (chains, dim) to ascent gradients (chains, dim), noisy or not. It is
        called once per step, for all chains. The run's seed does not control its randomness.
    dim
        Dimension of the points.
    """
    check_whole(dim=dim)
    if not callable(gradient):
        raise TypeError(f"gradient is of type {type(gradient).__name__}; give a function from points to gradients.")
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
            f"gradient returned shape {array.shape} for points of shape {shape}; return one gradient per point."
        )
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"gradient returned numbers of type {array.dtype}; return real numbers.")
    broken = int(np.count_nonzero(~np.isfinite(array).all(axis=1)))
    if broken:
        raise ValueError(
            f"gradient returned a NaN or an infinity at {broken} of {len(array)} points; return finite numbers."
        )
    return array
