"""What learners climb: a reward known through noisy gradients, ∇r(θ, ξ) with E ∇r(θ, ξ) = ∇R(θ)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
from jax import Array

from onlooker.noise import standard_normal

__all__ = ["NoisyReward", "Reward", "batch_shape"]


def batch_shape(steps: int, lanes: int | None, *features: int) -> tuple[int, ...]:
    """(steps, features…, lanes), without the last when there are no lanes."""
    return (steps, *features) if lanes is None else (steps, *features, lanes)


class Reward(Protocol):
    """What the agents need to know of a reward."""

    @property
    def dim(self) -> int: ...

    def draw(self, key: Array, steps: int, lanes: int | None = None) -> Any:
        """ξ for every step and lane: a pytree with leaves (steps, …, lanes), or (steps, …) without lanes."""
        ...

    def sample_gradient(self, point: Array, xi: Any) -> Array:
        """∇r(θ, ξ) at one point (dim,)."""
        ...


@dataclass(frozen=True, eq=False)
class NoisyReward:
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

    def draw(self, key: Array, steps: int, lanes: int | None = None) -> Array:
        return standard_normal(key, batch_shape(steps, lanes, self.dim))

    def sample_gradient(self, point: Array, xi: Array) -> Array:
        return self.gradient(point) + self.noise_scale * xi
