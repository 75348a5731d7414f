"""R(θ, x_k): a reward that jumps, x_{k+1} from x_k by the transition matrix I + ηQ.

η is the rate of jumping and Q a generator: its rows sum to zero, off its diagonal nothing is negative. Every lane has a
path of regimes of its own; a stream without lanes has one.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.learners.reward import Reward, batch_shape

__all__ = ["Switching"]


@dataclass(frozen=True, eq=False)
class Switching:
    """Rewards that take turns.

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

    rewards: tuple[Reward, ...]
    generator: Any
    rate: float
    start: Any = None

    def __post_init__(self) -> None:
        count = len(self.rewards)
        if len({reward.dim for reward in self.rewards}) != 1:
            raise ValueError("rewards are of different dimensions, or none; give at least one, all of the same.")
        generator = np.asarray(self.generator, float)
        if generator.shape != (count, count):
            raise ValueError(f"generator has shape {generator.shape}; {count} rewards need ({count}, {count}).")
        moves = np.eye(count) + self.rate * generator
        if (moves < 0).any() or not np.allclose(moves.sum(axis=1), 1):
            raise ValueError(
                f"I + rate·generator has entries from {moves.min():.3g} and rows that sum to {moves.sum(axis=1)}; give "
                "a generator whose rows sum to zero, and a rate small enough for probabilities."
            )
        start = np.full(count, 1 / count) if self.start is None else np.asarray(self.start, float)
        if start.shape != (count,) or (start < 0).any() or not np.isclose(start.sum(), 1):
            raise ValueError(f"start is {self.start}; give a probability for each of {count} rewards.")
        object.__setattr__(self, "generator", generator)
        object.__setattr__(self, "start", start)

    @property
    def dim(self) -> int:
        return self.rewards[0].dim

    @property
    def data(self) -> Any:
        return tuple(reward.data for reward in self.rewards)

    def begin(self, data: Any, key: Array, lanes: int | None) -> Any:
        shape = () if lanes is None else (lanes,)
        regime = jax.random.choice(key, len(self.rewards), shape, p=jnp.asarray(self.start))
        return regime, tuple(
            reward.begin(part, jax.random.fold_in(key, number), lanes)
            for number, (reward, part) in enumerate(zip(self.rewards, data, strict=True))
        )

    def draw(self, data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Any]:
        regime, carries = carry
        upto = jnp.cumsum(jnp.asarray(np.eye(len(self.rewards)) + self.rate * self.generator), axis=1)[:, :-1]

        def jump(regime: Array, uniform: Array) -> tuple[Array, Array]:
            return jnp.sum(uniform[..., None] >= upto[regime], axis=-1), regime

        regime, path = lax.scan(jump, regime, jax.random.uniform(key, batch_shape(steps, lanes)))
        drawn = [
            reward.draw(part, own, jax.random.fold_in(key, number), steps, lanes)
            for number, (reward, part, own) in enumerate(zip(self.rewards, data, carries, strict=True))
        ]
        return (regime, tuple(after for after, _ in drawn)), (path, tuple(xi for _, xi in drawn))

    def sample_gradient(self, point: Array, xi: Any) -> Array:
        regime, each = xi
        branches = [
            lambda number=number, reward=reward: reward.sample_gradient(point, each[number])
            for number, reward in enumerate(self.rewards)
        ]
        return lax.switch(regime, branches)
