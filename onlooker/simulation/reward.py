"""Rewards, known through noisy gradients: ∇r(θ, ξ) with E ∇r(θ, ξ) = ∇R(θ)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from onlooker.core.random import standard_normal

__all__ = ["Memoryless", "NoisyReward", "Reward", "batch_shape", "first_rows", "sweep"]


def batch_shape(steps: int, lanes: int | None, *features: int) -> tuple[int, ...]:
    """(steps, features…, lanes), without the last axis if there are no lanes."""
    return (steps, *features) if lanes is None else (steps, *features, lanes)


class Reward(Protocol):
    """What agents need of a reward."""

    @property
    def dim(self) -> int: ...

    @property
    def data(self) -> Any:
        """Arrays from which samples are read, passed to jit as arguments; () if there are none."""
        ...

    def begin(self, data: Any, key: Array, lanes: int | None) -> Any:
        """The state of the sampling of ξ, such as the next row of a sweep; () if there is none."""
        ...

    def draw(self, data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Any]:
        """ξ for every step and lane: a pytree with leaves (steps, …, lanes), or (steps, …) without lanes."""
        ...

    def sample_gradient(self, point: Array, xi: Any) -> Array:
        """∇r(θ, ξ) at one point (dim,)."""
        ...


class Memoryless:
    """A reward whose ξ are independent: it needs ``sample`` only."""

    @property
    def data(self) -> Any:
        return ()

    def begin(self, data: Any, key: Array, lanes: int | None) -> Any:
        return ()

    def draw(self, data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Any]:
        return carry, self.sample(data, key, steps, lanes)

    def sample(self, data: Any, key: Array, steps: int, lanes: int | None) -> Any:
        raise NotImplementedError


def first_rows(key: Array, lanes: int | None, rows: int, rotated: bool) -> Array:
    """The first row of each lane's sweep: a random one, or the first."""
    shape = () if lanes is None else (lanes,)
    return jax.random.randint(key, shape, 0, rows) if rotated else jnp.zeros(shape, jnp.int32)


def sweep(first: Array, steps: int, rows: int) -> tuple[Array, Array]:
    """The next first row and the row numbers (steps, lanes), or (steps,), of a cyclic sweep."""
    taken = jnp.arange(steps).reshape(-1, *(1,) * first.ndim)
    return (first + steps) % rows, (first[None] + taken) % rows


@dataclass(frozen=True, eq=False)
class NoisyReward(Memoryless):
    """A reward function with additive noise on its gradient, g = ∇R(θ) + s ξ with ξ ~ N(0, I).

    Attributes
    ----------
    dim
        N.
    value
        R at one point (dim,).
    noise_scale
        s.
    """

    dim: int
    value: Callable[[Array], Array]
    noise_scale: float = 1.0

    def gradient(self, point: Array) -> Array:
        return jax.grad(self.value)(point)

    def sample(self, data: Any, key: Array, steps: int, lanes: int | None = None) -> Array:
        return standard_normal(key, batch_shape(steps, lanes, self.dim))

    def sample_gradient(self, point: Array, xi: Array) -> Array:
        return self.gradient(point) + self.noise_scale * xi
