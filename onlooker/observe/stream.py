"""A stream of evidence: what run.py hands the chains, a block of steps at a time.

Evidence is a pytree whose leaves lead with the step axis. A *shared* stream is seen by all chains at once, its
observations are (steps, dim); otherwise every chain has a stream of its own on the last axis, (steps, dim, chains).
A stream of *questions* draws only the randomness ξ of the answers; the gradient at the chain's own position
follows in ``answer(point, ξ)``.

A block is always drawn whole, from its own key, so where a run stops never changes what it sees.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.observe.observation import Observation, Observations

__all__ = ["LONGEST_BLOCK", "Stream", "recorded", "simulated"]

# Steps in a block, at the most. Recorded streams are padded by as many rows, so that the last block is whole.
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
        ``draw(data, carry, key, steps, lanes) -> (carry, evidence)`` for a whole block..
    data
        Arrays the stream reads from, passed through jit as arguments.
    shared
        One stream for all chains, or one per chain.
    answer
        For a stream of questions: ``answer(point, ξ) -> gradient``, for one chain.
    length
        Steps available; ``None`` when endless.
    observations
        What a recorded stream was made from.
    """

    dim: int
    init: Callable[[Any, Array, int | None], Any]
    draw: Callable[[Any, Any, Array, int, int | None], tuple[Any, Any]]
    data: Any = ()
    shared: bool = True
    answer: Callable[[Array, Any], Array] | None = None
    length: int | None = None
    observations: Observations | None = None


def recorded(observations: Observations, dtype: Any = jnp.float32) -> Stream:
    """Observations that were written down, in their order, shared by all chains."""

    def padded(rows: np.ndarray) -> Array:
        return jnp.asarray(np.concatenate([rows, np.zeros((LONGEST_BLOCK, rows.shape[1]), rows.dtype)]).astype(dtype))

    def init(data: Observation, key: Array, lanes: int | None) -> Array:
        return jnp.zeros((), jnp.int32)

    return Stream(
        observations.dim,
        init,
        _read,
        Observation(padded(observations.points), padded(observations.gradients)),
        shared=True,
        length=len(observations),
        observations=observations,
    )


def _read(data: Observation, row: Array, key: Array, steps: int, lanes: int | None) -> tuple[Array, Observation]:
    return row + steps, jax.tree.map(lambda rows: lax.dynamic_slice_in_dim(rows, row, steps), data)


def simulated(
    dim: int,
    draw: Callable[[Any, Any, Array, int, int | None], tuple[Any, Any]],
    *,
    init: Callable[[Any, Array, int | None], Any] = lambda data, key, lanes: (),
    data: Any = (),
    shared: bool = False,
    answer: Callable[[Array, Any], Array] | None = None,
) -> Stream:
    """An endless simulated stream."""
    return Stream(dim, init, draw, data, shared, answer)
