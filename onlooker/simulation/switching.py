"""R(θ, x_k): a reward that jumps between regimes, at random or by a schedule.

At random: x_{k+1} follows x_k by the transition matrix I + ηQ, where η is the rate of jumping and Q a generator, whose
rows sum to zero and whose entries off the diagonal are not negative. Every lane then has its own path of regimes; a
stream without lanes has one. By a schedule: all lanes jump together.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.core.settings import check_positive, check_whole
from onlooker.simulation.reward import Reward, batch_shape

__all__ = ["Scheduled", "Switching"]

# Float32 uniform numbers are multiples of this; a second number refines them, so that rarer jumps happen too.
UNIFORM_STEP = 2.0**-23


@dataclass(frozen=True, eq=False)
class _Regimes:
    """Rewards of which one is active at a time; the first leaf of ξ says which."""

    rewards: tuple[Reward, ...]

    def __post_init__(self) -> None:
        if len({reward.dim for reward in self.rewards}) != 1:
            raise ValueError("rewards is empty, or of different dimensions; give at least one, all of one dimension.")

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
        state, carries = carry
        state, path = self._path(state, key, steps, lanes)
        drawn = [
            reward.draw(part, own, jax.random.fold_in(key, number), steps, lanes)
            for number, (reward, part, own) in enumerate(zip(self.rewards, data, carries, strict=True))
        ]
        return (state, tuple(after for after, _ in drawn)), (path, tuple(xi for _, xi in drawn))

    def sample_gradient(self, point: Array, xi: Any) -> Array:
        regime, each = xi
        branches = [
            lambda number=number, reward=reward: reward.sample_gradient(point, each[number])
            for number, reward in enumerate(self.rewards)
        ]
        return lax.switch(regime, branches)

    def _first(self, key: Array, lanes: int | None) -> Array:
        """The state from which the next regime follows."""
        raise NotImplementedError

    def _path(self, state: Array, key: Array, steps: int, lanes: int | None) -> tuple[Array, Array]:
        """The regime of every step and lane, and the state after them."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Switching(_Regimes):
    """Rewards that alternate at random.

    Attributes
    ----------
    rewards
        One for each regime, of the same dimension.
    generator
        Q, (regimes, regimes).
    rate
        η, at most one over the largest entry of Q's diagonal.
    start
        Probabilities of the first regime; default: uniform.
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
            raise ValueError(f"generator has shape {generator.shape}; for {count} rewards give ({count}, {count}).")
        moves = np.eye(count) + self.rate * generator
        if (moves < 0).any() or not np.allclose(generator.sum(axis=1), 0, atol=1e-6 * np.abs(generator).max()):
            raise ValueError(
                f"I + rate·generator has the smallest entry {moves.min():.3g} and rows that sum to "
                f"{moves.sum(axis=1)}; give a generator whose rows sum to zero, and a rate small enough "
                "that no entry is negative."
            )
        start = np.full(count, 1 / count) if self.start is None else np.asarray(self.start, float)
        if start.shape != (count,) or (start < 0).any() or not np.isclose(start.sum(), 1):
            raise ValueError(f"start is {self.start}; give a probability for each of {count} rewards.")
        object.__setattr__(self, "generator", generator)
        object.__setattr__(self, "start", start)

    def scheduled(self, steps: int, seed: int = 0) -> "Scheduled":
        """Draw one path of regimes, as a schedule."""
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

    def _path(self, state: Array, key: Array, steps: int, lanes: int | None) -> tuple[Array, Array]:
        count = len(self.rewards)
        # Jumps come first and staying last: small probabilities are then numbers near zero, where float32 is precise.
        others = np.array([[to for to in range(count) if to != here] + [here] for here in range(count)])
        moves = np.take_along_axis(self.rate * self.generator, others, axis=1)[:, :-1]
        upto, to = jnp.asarray(np.cumsum(moves, axis=1), jnp.float32), jnp.asarray(others, jnp.int32)

        def jump(regime: Array, uniform: Array) -> tuple[Array, Array]:
            return to[regime, jnp.sum(uniform[..., None] >= upto[regime], axis=-1)], regime

        coarse, fine = jax.random.uniform(key, (2, *batch_shape(steps, lanes)))
        return lax.scan(jump, state.astype(jnp.int32), coarse + fine * UNIFORM_STEP)


@dataclass(frozen=True, eq=False)
class Scheduled(_Regimes):
    """Rewards that alternate at given times.

    Attributes
    ----------
    rewards
        All rewards, of the same dimension.
    times
        The steps at which another reward becomes active, in ascending order.
    regimes
        The index of the first reward, and of the reward from each of the times on; one more entry than ``times``.
    """

    times: tuple[int, ...]
    regimes: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.regimes) != len(self.times) + 1:
            raise ValueError(
                f"regimes has {len(self.regimes)} entries but times has {len(self.times)}; give one regime more: the "
                "first, and one from each time on."
            )
        whole = all(number == int(number) for number in (*self.times, *self.regimes))
        if not whole or (np.diff([0, *self.times]) < 1).any():
            raise ValueError(
                f"times is {self.times} and regimes {self.regimes}; give whole numbers, times in ascending order."
            )
        if not all(0 <= regime < len(self.rewards) for regime in self.regimes):
            raise ValueError(f"regimes is {self.regimes}; give numbers from 0 to {len(self.rewards) - 1}.")

    def path(self, steps: int) -> np.ndarray:
        """The regime of each of the first ``steps`` steps."""
        return np.asarray(self.regimes)[np.searchsorted(self.times, np.arange(steps), side="right")]

    def _first(self, key: Array, lanes: int | None) -> Array:
        return jnp.zeros((), jnp.int32)

    def _path(self, state: Array, key: Array, steps: int, lanes: int | None) -> tuple[Array, Array]:
        now = state + jnp.arange(steps)
        turn = jnp.searchsorted(jnp.asarray(self.times, jnp.int32), now, side="right")
        path = jnp.asarray(self.regimes, jnp.int32)[turn]
        return state + steps, path if lanes is None else jnp.broadcast_to(path[:, None], (steps, lanes))
