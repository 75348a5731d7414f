"""R(θ, x_k): a reward that jumps from regime to regime, by chance or by a schedule.

By chance, x_{k+1} follows x_k by the transition matrix I + ηQ: η is the rate of jumping and Q a generator, whose rows
sum to zero and which is nowhere negative off its diagonal. Every lane then has a path of regimes of its own; a stream
without lanes has one. By a schedule all of them jump together.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.check import check_positive, check_whole
from onlooker.learners.reward import Reward, batch_shape

__all__ = ["Scheduled", "Switching"]

# Uniform numbers are multiples of this.
UNIFORM_STEP = 2.0**-23


@dataclass(frozen=True, eq=False)
class _Regimes:
    """Rewards of which one holds at a time; which one is the first leaf of ξ."""

    rewards: tuple[Reward, ...]

    def __post_init__(self) -> None:
        if len({reward.dim for reward in self.rewards}) != 1:
            raise ValueError("rewards are of different dimensions, or none; give at least one, all of the same.")

    @property
    def dim(self) -> int:
        return self.rewards[0].dim

    @property
    def data(self) -> Any:
        return tuple(reward.data for reward in self.rewards)

    def begin(self, data: Any, key: Array, lanes: int | None) -> Any:
        return self._first(key, lanes), tuple(
            reward.begin(part, jax.random.fold_in(key, number), lanes)
            for number, (reward, part) in enumerate(zip(self.rewards, data, strict=True))
        )

    def draw(self, data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Any]:
        place, carries = carry
        place, path = self._path(place, key, steps, lanes)
        drawn = [
            reward.draw(part, own, jax.random.fold_in(key, number), steps, lanes)
            for number, (reward, part, own) in enumerate(zip(self.rewards, data, carries, strict=True))
        ]
        return (place, tuple(after for after, _ in drawn)), (path, tuple(xi for _, xi in drawn))

    def sample_gradient(self, point: Array, xi: Any) -> Array:
        regime, each = xi
        branches = [
            lambda number=number, reward=reward: reward.sample_gradient(point, each[number])
            for number, reward in enumerate(self.rewards)
        ]
        return lax.switch(regime, branches)

    def _first(self, key: Array, lanes: int | None) -> Array:
        """What says which regime comes next."""
        raise NotImplementedError

    def _path(self, place: Array, key: Array, steps: int, lanes: int | None) -> tuple[Array, Array]:
        """The regime of every step and lane, and what says which comes then."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Switching(_Regimes):
    """Rewards that take turns by chance.

    Attributes
    ----------
    rewards
        One for each regime, of the same dimension.
    generator
        Q, (regimes, regimes).
    rate
        η, at most one over the largest entry of Q's diagonal.
    start
        Probabilities of the first regime; by default all alike.
    """

    generator: Any
    rate: float
    start: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(rate=self.rate)
        count = len(self.rewards)
        generator = np.asarray(self.generator, float)
        if generator.shape != (count, count):
            raise ValueError(f"generator has shape {generator.shape}; {count} rewards need ({count}, {count}).")
        moves = np.eye(count) + self.rate * generator
        if (moves < 0).any() or not np.allclose(generator.sum(axis=1), 0, atol=1e-6 * np.abs(generator).max()):
            raise ValueError(
                f"I + rate·generator has entries from {moves.min():.3g} and rows that sum to {moves.sum(axis=1)}; give "
                "a generator whose rows sum to zero, and a rate small enough for probabilities."
            )
        start = np.full(count, 1 / count) if self.start is None else np.asarray(self.start, float)
        if start.shape != (count,) or (start < 0).any() or not np.isclose(start.sum(), 1):
            raise ValueError(f"start is {self.start}; give a probability for each of {count} rewards.")
        object.__setattr__(self, "generator", generator)
        object.__setattr__(self, "start", start)

    def scheduled(self, steps: int, seed: int = 0) -> "Scheduled":
        """One path of regimes over so many steps, drawn and written down."""
        check_whole(steps=steps)
        random = np.random.default_rng(seed)
        regimes = [int(random.choice(len(self.rewards), p=self.start))]
        times: list[int] = []
        now = 0
        while True:
            leaving = -self.rate * self.generator[regimes[-1], regimes[-1]]
            # A geometric dwell longer than the path may not fit an integer.
            now += int(min(random.geometric(leaving), steps)) if leaving > 0 else steps
            if now >= steps:
                return Scheduled(self.rewards, tuple(times), tuple(regimes))
            to = self.rate * np.where(np.arange(len(self.rewards)) == regimes[-1], 0, self.generator[regimes[-1]])
            regimes.append(int(random.choice(len(self.rewards), p=to / leaving)))
            times.append(now)

    def _first(self, key: Array, lanes: int | None) -> Array:
        return jax.random.choice(key, len(self.rewards), () if lanes is None else (lanes,), p=jnp.asarray(self.start))

    def _path(self, place: Array, key: Array, steps: int, lanes: int | None) -> tuple[Array, Array]:
        count = len(self.rewards)
        # Others come first and staying last: a small chance is a number near zero, where float32 is fine.
        others = np.array([[to for to in range(count) if to != here] + [here] for here in range(count)])
        moves = np.take_along_axis(self.rate * self.generator, others, axis=1)[:, :-1]
        upto, to = jnp.asarray(np.cumsum(moves, axis=1), jnp.float32), jnp.asarray(others, jnp.int32)

        def jump(regime: Array, uniform: Array) -> tuple[Array, Array]:
            return to[regime, jnp.sum(uniform[..., None] >= upto[regime], axis=-1)], regime

        coarse, fine = jax.random.uniform(key, (2, *batch_shape(steps, lanes)))
        return lax.scan(jump, place.astype(jnp.int32), coarse + fine * UNIFORM_STEP)


@dataclass(frozen=True, eq=False)
class Scheduled(_Regimes):
    """Rewards that take turns at given times.

    Attributes
    ----------
    rewards
        All that there are, of the same dimension.
    times
        The steps at which another one begins to hold, in ascending order.
    regimes
        Which one holds first, and from each of the times on: one more than these.
    """

    times: tuple[int, ...]
    regimes: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.regimes) != len(self.times) + 1:
            raise ValueError(
                f"regimes has {len(self.regimes)} entries; {len(self.times)} times need one more: the first regime "
                "and one from each time on."
            )
        whole = all(number == int(number) for number in (*self.times, *self.regimes))
        if not whole or (np.diff([0, *self.times]) < 1).any():
            raise ValueError(f"times are {self.times} and regimes {self.regimes}; give whole steps in ascending order.")
        if not all(0 <= regime < len(self.rewards) for regime in self.regimes):
            raise ValueError(f"regimes are {self.regimes}; give numbers from 0 to {len(self.rewards) - 1}.")

    def path(self, steps: int) -> np.ndarray:
        """The regime of each of the first so many steps."""
        return np.asarray(self.regimes)[np.searchsorted(self.times, np.arange(steps), side="right")]

    def _first(self, key: Array, lanes: int | None) -> Array:
        return jnp.zeros((), jnp.int32)

    def _path(self, place: Array, key: Array, steps: int, lanes: int | None) -> tuple[Array, Array]:
        now = place + jnp.arange(steps)
        turn = jnp.searchsorted(jnp.asarray(self.times, jnp.int32), now, side="right")
        path = jnp.asarray(self.regimes, jnp.int32)[turn]
        return place + steps, path if lanes is None else jnp.broadcast_to(path[:, None], (steps, lanes))
