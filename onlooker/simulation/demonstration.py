"""Simulated learners for the page: a hundred, whose reward jumps from time to time."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.density import standard_normal
from onlooker.core.messages import Message
from onlooker.data.log.tail import Batch
from onlooker.simulation.agents import record, running_pools
from onlooker.simulation.reward import NoisyReward
from onlooker.simulation.switching import Scheduled

__all__ = ["Demonstration"]

Values = Callable[[np.ndarray], np.ndarray]

# The number of agents, steps of an agent before it restarts, ε, and the standard deviation of the gradient noise.
AGENTS, HORIZON, LEARNING_RATE, NOISE = 100, 40, 0.01, 4.0
# Rows per second.
PACE = 20_000
# The range of the number of steps between two jumps (7 to 15 seconds at this pace), and the number of jumps.
DWELL = (1500, 3000)
JUMPS = 5000
# Steps that are simulated at a time, and rows in a batch.
BLOCK = 100
SHOWN = 1000
# The largest delay, in seconds, that learners make up for.
LATE = 0.5


def _two_hills(x: Array) -> Array:
    hills = ((6.0, 1.0, (-1.1, 0.6)), (5.0, 0.8, (1.1, -0.7)))
    heights = [height * jnp.exp(-jnp.sum((x - jnp.array(at)) ** 2) / wide) for height, wide, at in hills]
    return sum(heights) - 0.3 * jnp.sum(x**2)


def _ring(x: Array) -> Array:
    return -1.2 * (jnp.sum(x**2) - 1.8) ** 2


def _valley(x: Array) -> Array:
    return -1.5 * (x[1] - 0.6 * x[0] ** 2 + 0.8) ** 2 - 0.5 * (x[0] - 0.8) ** 2


REWARDS = (_two_hills, _ring, _valley)


@dataclass
class Demonstration:
    """A hundred simulated learners, whose reward jumps from time to time.

    Parameters
    ----------
    pace
        Rows per second; 0 for no limit.
    seed
        Seed of all random numbers.
    """

    pace: float = PACE
    seed: int = 0
    name: str = field(default="a demonstration: 100 simulated learners whose reward jumps", init=False)
    message: str = field(default="", init=False)

    @property
    def warnings(self) -> list[Message]:
        return []

    def coordinate(self, axis: int) -> str:
        return f"θ({axis + 1})"

    @cached_property
    def world(self) -> Scheduled:
        rewards = tuple(NoisyReward(2, value, NOISE) for value in REWARDS)
        dwells = np.random.default_rng(self.seed).integers(*DWELL, JUMPS)
        regimes = tuple(number % len(rewards) for number in range(JUMPS + 1))
        return Scheduled(rewards, tuple(np.cumsum(dwells).tolist()), regimes)

    def batches(self, stopped: Callable[[], bool]) -> Iterator[Batch]:
        agents = running_pools(
            self.world, standard_normal(2, 1.0), AGENTS, learning_rate=LEARNING_RATE, horizon=HORIZON
        )
        due = time.monotonic()
        for observations in record(agents, np.iinfo(np.int32).max, seed=self.seed, block=BLOCK):
            assert observations.agents is not None
            for first in range(0, len(observations), SHOWN):
                rows = slice(first, first + SHOWN)
                if stopped():
                    return
                yield Batch(observations.points[rows], observations.gradients[rows], observations.agents[rows])
                if self.pace:
                    # Make up for a delay, but only a small one.
                    due = max(time.monotonic() - LATE, due + SHOWN / self.pace)
                    time.sleep(max(0.0, due - time.monotonic()))

    def truth(self, seen: int) -> Values | None:
        step = min(seen // AGENTS, np.iinfo(np.int32).max)
        regime = self.world.regimes[int(np.searchsorted(self.world.times, step, side="right"))]
        value = _compiled(REWARDS[regime])
        return lambda points: np.asarray(value(np.asarray(points, np.float32)), float)


@cache
def _compiled(value: Callable[[Array], Array]) -> Callable[[np.ndarray], Array]:
    return jax.jit(jax.vmap(value))
