"""Small streams to test inverse learners on: points from N(0, I), gradients of R = −|θ|²/2 with noise.

The module of each learner has a function ``examples()`` that proposes its test cases, on these streams or others;
`onlooker.testing` finds them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.random import standard_normal
from onlooker.data.observations import Observation, Observations
from onlooker.data.stream import Stream, pooled, recorded, simulated

if TYPE_CHECKING:
    from onlooker.inverse.base import InverseLearner

__all__ = ["Example", "answers", "observations", "observed", "pools"]

DIM, NOISE = 2, 0.5


@dataclass(frozen=True)
class Example:
    """An inverse learner and something to run it on.

    Attributes
    ----------
    learner
        Returns the learner; called once for each precision.
    stream
        ``stream(dtype)`` returns its stream: endless, or of at least ``steps`` steps.
    start
        Where chains start, as in `run`.
    steps
        Number of steps; it must exceed two blocks.
    chains
        Number of chains.
    """

    learner: "Callable[[], InverseLearner]"
    stream: Callable[[Any], Stream]
    start: Any = None
    steps: int = 10_000
    chains: int = 24


def observations(rows: int = 10_000) -> Observations:
    """Independent observations."""
    points, noise = np.random.default_rng(0).standard_normal((2, rows, DIM), np.float32)
    return Observations(_aligned(points), _aligned(-points + np.float32(NOISE) * noise))


def observed(dtype: Any) -> Stream:
    """One observation a step."""
    return recorded(observations(), dtype)


def pools(dtype: Any) -> Stream:
    """Ten observations a step, for 9000 steps."""
    return pooled(recorded(observations(90_000), dtype), 10)


def answers(dtype: Any) -> Stream:
    """Gradients wherever a chain asks for one."""

    def draw(data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Array]:
        return carry, standard_normal(key, (steps, DIM) if lanes is None else (steps, DIM, lanes), jnp.float32)

    def answer(point: Array, noise: Array) -> Observation:
        return Observation(point, -point + NOISE * noise.astype(point.dtype))

    return simulated(DIM, draw, answer=answer)


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 64 bytes: memory that JAX on a CPU shares with the caller unless told to copy it."""
    buffer = np.empty(array.nbytes + 64, np.uint8)
    first = -buffer.ctypes.data % 64
    copy = buffer[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy
