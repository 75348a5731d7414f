"""Streams that only tests need: each fulfils the assumption of one of the paper's remarks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from onlooker.core.random import standard_normal
from onlooker.data.observations import Observation
from onlooker.data.stream import Stream, simulated
from onlooker.simulation.reward import Reward

__all__ = ["CorrelatedNoise", "wandering"]


@dataclass(frozen=True)
class CorrelatedNoise:
    """A reward with the AR(1) gradient noise ξ_k = ρ ξ_{k−1} + √(1−ρ²) z_k, for rewards whose ξ is Gaussian.

    The law of ξ_k at a single step is that of the reward's own noise, so the limit is the same.

    Attributes
    ----------
    reward
        The reward.
    correlation
        ρ.
    """

    reward: Reward
    correlation: float

    @property
    def dim(self) -> int:
        return self.reward.dim

    @property
    def data(self) -> Any:
        return self.reward.data

    def begin(self, data: Any, key: Array, lanes: int | None) -> Any:
        carry, xi = self.reward.draw(data, self.reward.begin(data, key, lanes), key, 1, lanes)
        return carry, jax.tree.map(lambda leaf: leaf[0], xi)

    def draw(self, data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Any]:
        carry, before = carry
        carry, fresh = self.reward.draw(data, carry, key, steps, lanes)
        share = (1 - self.correlation**2) ** 0.5

        def correlate(before: Any, now: Any) -> tuple[Any, Any]:
            after = jax.tree.map(lambda old, new: self.correlation * old + share * new, before, now)
            return after, after

        before, xi = lax.scan(correlate, before, fresh)
        return (carry, before), xi

    def sample_gradient(self, point: Array, xi: Any) -> Array:
        return self.reward.sample_gradient(point, xi)


def wandering(reward: Reward, transition: Callable[[Array, Array], Array], start: Any) -> Stream:
    """A stream of θ_k from an ergodic Markov chain, θ_{k+1} = transition(θ_k, z_k) with z_k ~ N(0, I), one per chain.

    Parameters
    ----------
    reward
        The reward whose gradients are observed.
    transition
        The map (θ, z) → next θ.
    start
        θ_0.
    """

    def init(data: Any, key: Array, lanes: int) -> tuple[Array, Any]:
        place = jnp.broadcast_to(jnp.asarray(start, jnp.float32)[:, None], (reward.dim, lanes))
        return place, reward.begin(data, key, lanes)

    def draw(data: Any, carry: Any, key: Array, steps: int, lanes: int) -> tuple[Any, Observation]:
        place, rows = carry
        point_key, xi_key = jax.random.split(key)
        move = jax.vmap(transition, in_axes=-1, out_axes=-1)
        noise = standard_normal(point_key, (steps, reward.dim, lanes))
        place, point = lax.scan(lambda place, z: (move(place, z), place), place, noise)
        rows, xi = reward.draw(data, rows, xi_key, steps, lanes)
        gradients = jax.vmap(jax.vmap(reward.sample_gradient, in_axes=-1, out_axes=-1))(point, xi)
        return (place, rows), Observation(point, gradients)

    return simulated(reward.dim, draw, init=init, data=reward.data)
