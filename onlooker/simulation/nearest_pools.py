"""Pools of L draws from N(0, I) of which only the nearest few are simulated: the law of a full pool at less cost.

A draw θ is split along the chain's direction: θ = u α/‖α‖ + r s with u ~ N(0, 1), r² ~ χ²(N−1) and s uniform on the
directions across, all independent. Its distance to the chain, ‖θ − α‖² = (u − ‖α‖)² + r², does not need the direction.
So all L distances are drawn, and directions only for the nearest. In many dimensions these have all the weight; a
direct simulation would draw L·N normals for one or two vectors that count.

This is an option of the simulator, not of an inverse learner: it must know the chain's position.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from onlooker.core.random import standard_normal
from onlooker.core.settings import check_whole
from onlooker.data.observations import Observation
from onlooker.data.stream import Stream, simulated
from onlooker.simulation.reward import Reward, batch_shape

__all__ = ["nearest_of_pools"]

# A proposal for a χ²(9) is rejected once in 140 times, for a χ²(123) once in 2000; the second is always accepted.
FEWEST_DIMENSIONS = 10


class _Pool(NamedTuple):
    """Random numbers of a pool, for any position of the chain: (L,) along, (L,) across², (keep, N) directions, ξ."""

    along: Array
    across_squared: Array
    direction: Array
    xi: Any


def nearest_of_pools(reward: Reward, size: int, *, keep: int = 4) -> Stream:
    """The ``keep`` nearest observations of pools of ``size`` points from N(0, I), one ξ for each whole pool.

    Parameters
    ----------
    reward
        The reward that is climbed.
    size
        L.
    keep
        Number of observations that are simulated, at most ``size``. The law is exact if a learner would give the
        others no weight: its kernel ESS must be well below ``keep``, and `run` warns if it is not.
    """
    check_whole(size=size, keep=keep)
    if keep > size or reward.dim < FEWEST_DIMENSIONS:
        raise ValueError(
            f"keep is {keep} for pools of {size} in {reward.dim} dimensions; give at most size, and a reward of "
            f"at least {FEWEST_DIMENSIONS} dimensions."
        )

    def draw(data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, _Pool]:
        along_key, across_key, direction_key, xi_key = jax.random.split(key, 4)
        along = standard_normal(along_key, batch_shape(steps, lanes, size))
        across = _chi_square(across_key, reward.dim - 1, batch_shape(steps, lanes, size))
        direction = standard_normal(direction_key, batch_shape(steps, lanes, keep, reward.dim))
        carry, xi = reward.draw(data, carry, xi_key, steps, lanes)
        return carry, _Pool(along, across, direction, xi)

    def answer(position: Array, pool: _Pool) -> Observation:
        norm = jnp.sqrt(jnp.sum(position * position))
        first = jnp.zeros_like(position).at[0].set(1)
        ahead = jnp.where(norm > 0, position / jnp.where(norm > 0, norm, 1), first)
        nearest = lax.top_k(-((pool.along - norm) ** 2 + pool.across_squared), keep)[1]
        sideways = pool.direction - (pool.direction @ ahead)[:, None] * ahead[None]
        radius = jnp.sqrt(pool.across_squared[nearest] / jnp.sum(sideways * sideways, axis=1))
        point = pool.along[nearest, None] * ahead[None] + radius[:, None] * sideways
        return Observation(point, jax.vmap(reward.sample_gradient, in_axes=(0, None))(point, pool.xi))

    numbers = 6 * size + (2 * keep + 1) * reward.dim
    return simulated(
        reward.dim, draw, init=reward.begin, data=reward.data, answer=answer, pool=size, shown=keep, numbers=numbers
    )


def _chi_square(key: Array, freedom: int, shape: tuple[int, ...]) -> Array:
    """χ² numbers by Marsaglia and Tsang's proposal d(1 + cx)³, with two attempts instead of an unlimited number."""
    shift = freedom / 2 - 1 / 3
    scale = (9 * shift) ** -0.5

    def propose(key: Array) -> tuple[Array, Array]:
        normal_key, uniform_key = jax.random.split(key)
        normal = standard_normal(normal_key, shape)
        # The floors keep both logarithms finite.
        cube = jnp.maximum(1 + scale * normal, 1e-3) ** 3
        log_ratio = 0.5 * normal * normal + shift * (1 - cube + jnp.log(cube))
        return cube, jnp.log(jax.random.uniform(uniform_key, shape, minval=1e-30)) < log_ratio

    first_key, second_key = jax.random.split(key)
    cube, accepted = propose(first_key)
    return 2 * shift * jnp.where(accepted, cube, propose(second_key)[0])
