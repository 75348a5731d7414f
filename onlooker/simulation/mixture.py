"""R(θ) = log p(θ) + T E log p(y|θ): the paper's Example 1, a Bayesian mixture with two maxima (N = 2).

p(θ) = N(0, diag(prior variances)), p(y|θ) = ½N(θ₁, 2) + ½N(θ₁ + θ₂, 2), y from the true θ = (0, 1), T = 100. In
Example 1b the expectation is over T fixed rows y_1…y_T instead, and R is the log posterior given them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import expit

from onlooker.core.random import normal_and_coin
from onlooker.simulation.reward import Memoryless, batch_shape, first_rows, sweep

__all__ = ["Mixture", "Posterior", "Sweep"]

# The paper's variance of both components.
VARIANCE = 2.0


@dataclass(frozen=True, eq=False)
class Mixture(Memoryless):
    """Example 1's reward; a sample gradient uses one fresh y ~ p(·|true θ)."""

    prior_variances: tuple[float, float] = (10.0, 2.0)
    rows: int = 100
    truth: tuple[float, float] = (0.0, 1.0)
    dim: int = 2

    def sample(self, data: Any, key: Array, steps: int, lanes: int | None = None) -> Array:
        """y for every step and lane."""
        shape = batch_shape(steps, lanes)
        noise, second = normal_and_coin(key, shape)
        mean = jnp.where(second, self.truth[0] + self.truth[1], self.truth[0])
        return mean + np.float32(np.sqrt(VARIANCE)) * noise

    def sample_gradient(self, point: Array, y: Array) -> Array:
        """∇log p(θ) + T ∇log p(y|θ)."""
        first = y - point[0]
        second = first - point[1]
        share = jax.nn.sigmoid((first * first - second * second) / (2 * VARIANCE))
        scale = self.rows / VARIANCE
        along_first = scale * (first - share * point[1]) - point[0] / self.prior_variances[0]
        along_second = scale * share * second - point[1] / self.prior_variances[1]
        return jnp.stack([along_first, along_second])

    @cached_property
    def quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes and weights for E over y: Gauss–Hermite on either component."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        weights = weights / weights.sum() / 2
        spread = np.sqrt(VARIANCE) * nodes
        centres = (self.truth[0], self.truth[0] + self.truth[1])
        return np.concatenate([spread + centre for centre in centres]), np.concatenate([weights, weights])

    def value(self, points: np.ndarray) -> np.ndarray:
        """R at points (…, 2), in float64."""
        y, weight = self.quadrature
        points = np.asarray(points, dtype=float)
        expected = np.zeros(points.shape[:-1])
        for node, mass in zip(y, weight, strict=True):
            first = (node - points[..., 0]) ** 2 / (2 * VARIANCE)
            second = (node - points[..., 0] - points[..., 1]) ** 2 / (2 * VARIANCE)
            expected -= mass * (np.minimum(first, second) - np.log1p(np.exp(-np.abs(first - second))))
        prior = -(points**2 / (2 * np.asarray(self.prior_variances))).sum(axis=-1)
        return prior + self.rows * expected

    def gradient_moments(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """E g (…, 2) and E g gᵀ (…, 2, 2) of the sample gradient g at points (…, 2), in float64."""
        y, weight = self.quadrature
        points = np.asarray(points, dtype=float)
        scale = self.rows / VARIANCE
        prior = points / np.asarray(self.prior_variances)
        mean, second_moment = np.zeros(points.shape), np.zeros((*points.shape, 2))
        for node, mass in zip(y, weight, strict=True):
            first = node - points[..., 0]
            second = first - points[..., 1]
            share = expit((first**2 - second**2) / (2 * VARIANCE))
            gradient = np.stack([first - share * points[..., 1], share * second], axis=-1) * scale - prior
            mean += mass * gradient
            second_moment += mass * gradient[..., :, None] * gradient[..., None, :]
        return mean, second_moment


@dataclass(frozen=True, eq=False)
class Posterior(Mixture):
    """Example 1b's reward: the log posterior given T fixed rows; a sample gradient uses one of them.

    Attributes
    ----------
    dataset_seed
        Seed of the T rows, which are drawn once from p(·|true θ).
    """

    dataset_seed: int = 0

    @cached_property
    def data(self) -> np.ndarray:
        generator = np.random.default_rng(self.dataset_seed)
        second = generator.random(self.rows) < 0.5
        return self.truth[0] + second * self.truth[1] + np.sqrt(VARIANCE) * generator.standard_normal(self.rows)

    @cached_property
    def quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        return self.data, np.full(self.rows, 1 / self.rows)

    def sample(self, data: Array, key: Array, steps: int, lanes: int | None = None) -> Array:
        """y for every step and lane: rows picked at random."""
        return jnp.asarray(data, jnp.float32)[jax.random.randint(key, batch_shape(steps, lanes), 0, self.rows)]


@dataclass(frozen=True, eq=False)
class Sweep(Posterior):
    """Example 1b with agents that sweep the rows instead of choosing them at random.

    Attributes
    ----------
    order
        "rotated": in order, each agent from a random row. "aligned": in order, each agent from the first row; then
        the row number equals the agent's age, the gradient at a place depends on when agents pass it, and the
        answer is wrong, which examples show. "shuffled": in a new order every sweep.
    """

    order: str = "rotated"

    def __post_init__(self) -> None:
        if self.order not in ("rotated", "aligned", "shuffled"):
            raise ValueError(f"order is {self.order!r}; choose 'rotated', 'aligned' or 'shuffled'.")

    def begin(self, data: Array, key: Array, lanes: int | None) -> Array:
        """Each lane's first row."""
        return first_rows(key, lanes, self.rows, self.order == "rotated")

    def draw(self, data: Array, carry: Array, key: Array, steps: int, lanes: int | None) -> tuple[Array, Array]:
        """y for every step and lane: each lane's rows one after another."""
        following, row = sweep(carry, steps, self.rows)
        if self.order == "shuffled":
            ranks = jax.random.uniform(key, (-(-steps // self.rows), *batch_shape(self.rows, lanes)))
            row = jnp.argsort(ranks, axis=1).reshape(-1, *row.shape[1:])[:steps]
        return following, jnp.asarray(data, jnp.float32)[row]
