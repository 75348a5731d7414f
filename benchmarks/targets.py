"""Rewards that were not used to choose any default, exact draws from them, and learners that climb them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.density import standard_normal
from onlooker.data.observations import Observations
from onlooker.simulation.agents import simulate
from onlooker.simulation.exact.reference import hamiltonian
from onlooker.simulation.logistic import Logistic
from onlooker.simulation.reward import NoisyReward

MOST_DRAWS = 50_000


@dataclass(frozen=True)
class Target:
    """A reward, how to draw from exp(R) exactly, and how learners run on it."""

    name: str
    dim: int
    reward: Callable[[Array], Array]
    draw: Callable[[int], np.ndarray]
    spread: float = 1.5
    learning_rate: float = 0.01
    noise: float = 1.0

    def value(self, points: np.ndarray) -> np.ndarray:
        return np.asarray(jax.lax.map(self.reward, jnp.asarray(points, jnp.float32), batch_size=1000), float)

    def watch(self, count: int, seed: int, horizon: int = 50) -> Observations:
        """``count`` observations of agents that run for ``horizon`` steps."""
        return simulate(
            NoisyReward(self.dim, self.reward, self.noise),
            standard_normal(self.dim, self.spread),
            agents=max(1, count // horizon),
            horizon=horizon,
            learning_rate=self.learning_rate,
            seed=seed,
        )


def from_grid(reward: Callable[[Array], Array], half_width: float, cells: int = 800) -> Callable[[int], np.ndarray]:
    """Draws of exp(R) in two dimensions, by cells."""

    def draw(count: int) -> np.ndarray:
        step = 2 * half_width / cells
        axis = -half_width + (np.arange(cells) + 0.5) * step
        places = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        value = np.asarray(jax.lax.map(reward, jnp.asarray(places, jnp.float32), batch_size=10_000), float)
        mass = np.cumsum(np.exp(value - value.max()))
        generator = np.random.default_rng(12)
        chosen = np.searchsorted(mass, generator.random(count) * mass[-1])
        return places[chosen] + (generator.random((count, 2)) - 0.5) * step

    return draw


def banana(point: Array) -> Array:
    return -0.5 * point[0] ** 2 - 0.5 * (point[1] - point[0] ** 2 + 1) ** 2 / 0.25


def ring(point: Array) -> Array:
    radius = jnp.sqrt(jnp.sum(point * point) + 1e-9)
    return -0.5 * (radius - 1.5) ** 2 / 0.09 + 0.3 * point[0]


def wells(point: Array) -> Array:
    centres = jnp.array([[-1.2, 0.0], [1.0, 0.8], [0.6, -1.3]])
    share, width = jnp.array([0.5, 0.3, 0.2]), jnp.array([0.4, 0.3, 0.35])
    squared = jnp.sum((point - centres) ** 2, axis=1) / width**2
    return jax.scipy.special.logsumexp(jnp.log(share / width**2) - 0.5 * squared)


def saddle(point: Array) -> Array:
    """Two deep valleys joined by a flat bridge, tilted."""
    return -1.5 * (point[0] ** 2 - 1.2) ** 2 - 0.8 * (point[1] - 0.5 * point[0]) ** 2 + 0.4 * point[0]


def mixture(dim: int, seed: int) -> Target:
    """Two Gaussians with one full covariance."""
    generator = np.random.default_rng(seed)
    square = generator.standard_normal((dim, dim)) / np.sqrt(dim)
    root = np.linalg.cholesky(square @ square.T + 0.5 * np.eye(dim))
    precision = jnp.asarray(np.linalg.inv(root @ root.T), jnp.float32)
    centres = generator.standard_normal((2, dim))
    shares = np.array([0.6, 0.4])

    def reward(point: Array) -> Array:
        away = point - jnp.asarray(centres, jnp.float32)
        squared = jnp.einsum("ki,ij,kj->k", away, precision, away)
        return jax.scipy.special.logsumexp(jnp.log(jnp.asarray(shares, jnp.float32)) - 0.5 * squared)

    def draw(count: int) -> np.ndarray:
        generator = np.random.default_rng(seed + 1)
        chosen = generator.choice(2, count, p=shares)
        return centres[chosen] + generator.standard_normal((count, dim)) @ root.T

    return Target(f"mixture, {dim}-D", dim, reward, draw, learning_rate=0.02)


def logistic(dim: int, seed: int, rows: int = 500, weight: float = 10.0) -> Target:
    """A logistic posterior with a Laplace prior, of ``weight`` observations' worth of likelihood."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((rows, dim - 1)).astype(np.float32)
    truth = generator.standard_normal(dim)
    chance = 1 / (1 + np.exp(-0.7 * np.concatenate([np.ones((rows, 1)), features], axis=1) @ truth))
    reward = Logistic(features, (generator.random(rows) < chance).astype(np.float32), weight=weight)

    @cache
    def draws() -> np.ndarray:
        samples = hamiltonian(reward, chains=128, warmup=300, draws=MOST_DRAWS // 128 + 1, trajectory=1.0)
        return np.random.default_rng(seed).permutation(samples.reshape(-1, dim))

    return Target(f"logistic, {dim}-D", dim, reward.value, lambda count: draws()[:count], spread=1.0)


TARGETS = {
    target.name: target
    for target in (
        Target("banana", 2, banana, from_grid(banana, 8.0), spread=1.0, learning_rate=0.003),
        Target("ring", 2, ring, from_grid(ring, 4.0)),
        Target("three wells", 2, wells, from_grid(wells, 4.0)),
        Target("two valleys", 2, saddle, from_grid(saddle, 5.0), learning_rate=0.003),
        mixture(5, 3),
        mixture(10, 0),
        logistic(30, 0),
        mixture(124, 2),
    )
}
