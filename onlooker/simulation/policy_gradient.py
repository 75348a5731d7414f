"""g ≈ ∇R(a) from sample paths of a CMDP alone: score function, weak derivatives, SPSA.

The estimators, each of one path, are those of `path_gradients`. R's penalty is a square: from one path E B̂² ≠ B², and
the gradient of (B̂ − limit)² is biased. Two independent batches a and b are unbiased:

    g = ½(∇J_a + ∇J_b) − λ Σ_k [(B_a − limit)∇B_b + (B_b − limit)∇B_a].

`PolicyGradient` is a `Reward`: agents of `simulation.agents` climb it.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onlooker.core.policies import Coordinates
from onlooker.core.settings import check_whole
from onlooker.simulation.cmdp import CMDP
from onlooker.simulation.path_gradients import Estimate, Estimator, Score, Spsa, WeakDerivative
from onlooker.simulation.reward import Memoryless, batch_shape

__all__ = ["Assessment", "Estimate", "Estimator", "PolicyGradient", "Score", "Spsa", "WeakDerivative", "assess"]


@dataclass(frozen=True, eq=False)
class PolicyGradient(Memoryless):
    """The penalised reward of a CMDP, known through policy gradients.

    Attributes
    ----------
    cmdp
        The model whose penalised reward is climbed.
    coordinates
        The coordinates of the policies.
    estimator
        `Score()`, `WeakDerivative()` or `Spsa()`.
    batches
        2, or 1 for the biased gradient of the paper's single path.
    """

    cmdp: CMDP
    coordinates: Coordinates
    estimator: Estimator
    batches: int = 2

    def __post_init__(self) -> None:
        if (self.coordinates.states, self.coordinates.actions) != (self.cmdp.states, self.cmdp.actions):
            raise ValueError(
                f"coordinates are of {self.coordinates.states} states and {self.coordinates.actions} actions but the "
                f"CMDP has {self.cmdp.states} and {self.cmdp.actions}; give coordinates for the CMDP."
            )
        if not hasattr(self.estimator, "estimate"):
            raise TypeError(f"estimator is {self.estimator!r}; give an instance of Score, WeakDerivative or Spsa.")
        if self.batches not in (1, 2):
            raise ValueError(f"batches is {self.batches!r}; choose 2, or 1 for the biased gradient.")

    @property
    def dim(self) -> int:
        return self.coordinates.dim

    def value(self, point: Any) -> Any:
        """R at coordinates (…, dim), exactly, NumPy or JAX."""
        return self.cmdp.penalised(self.coordinates.policy(point))

    def gradient(self, point: np.ndarray) -> np.ndarray:
        """∇R at coordinates (…, dim), exactly."""
        return self.coordinates.pull(point, self.cmdp.penalised_gradient(self.coordinates.policy(point)))

    def sample(self, data: Any, key: Array, steps: int, lanes: int | None) -> Array:
        return jax.random.split(key, batch_shape(steps, lanes))

    def sample_gradient(self, point: Array, xi: Array) -> Array:
        return self.sample_with_cost(point, xi)[0]

    def sample_with_cost(self, point: Array, key: Array) -> tuple[Array, Array]:
        """A gradient estimate, and the number of steps simulated for it."""
        folded, sign = self.coordinates.fold(point)
        limit = jnp.asarray(self.cmdp.limit, point.dtype)

        def batch(key: Array) -> Estimate:
            return self.estimator.estimate(self.cmdp, self.coordinates, folded, key)

        if self.batches == 1:
            estimate = batch(key)
            # A baseline that does not depend on the path: the mean payoff of the table.
            baseline = jnp.asarray(self.cmdp.payoffs.mean(axis=(1, 2)), point.dtype)
            slopes = estimate.gradient - baseline[:, None] * estimate.slack[None]
            penalty = 2 * (estimate.value[1:] - limit) @ slopes[1:]
            return sign * (slopes[0] - self.cmdp.penalty * penalty), estimate.steps
        both = jax.vmap(batch)(jax.random.split(key))
        # Each batch's baseline is the other's value.
        slopes = both.gradient - both.value[::-1, :, None] * both.slack[:, None]
        excess = both.value[:, 1:] - limit[None]
        penalty = excess[0] @ slopes[1, 1:] + excess[1] @ slopes[0, 1:]
        return sign * (jnp.mean(slopes[:, 0], axis=0) - self.cmdp.penalty * penalty), jnp.sum(both.steps)


class Assessment(NamedTuple):
    """The quality of an estimator at one point.

    Attributes
    ----------
    exact
        ∇R, (dim,).
    mean
        Mean of the estimates.
    error
        Standard error of the mean.
    deviation
        √E‖g − E g‖² of one estimate.
    steps
        Mean number of steps simulated for one estimate.
    work
        deviation·√steps: the noise at a fixed budget of steps, whatever the horizon.
    """

    exact: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    deviation: float
    steps: float
    work: float


def assess(reward: PolicyGradient, point: Any, estimates: int = 10_000, seed: int = 0) -> Assessment:
    """Bias, variance and cost of a policy gradient at one point (dim,)."""
    check_whole(estimates=estimates)
    position = np.asarray(point, float)
    if estimates < 2:
        raise ValueError(f"estimates is {estimates}; a variance needs at least 2.")
    if position.shape != (reward.dim,) or not np.isfinite(position).all():
        raise ValueError(f"point is {point!r}; give {reward.dim} finite coordinates.")
    gradients, steps = (
        np.asarray(part, float) for part in _estimates(reward, jnp.asarray(position, jnp.float32), estimates, seed)
    )
    deviation = float(np.sqrt(gradients.var(axis=0, ddof=1).sum()))
    cost = float(steps.mean())
    error = gradients.std(axis=0, ddof=1) / math.sqrt(estimates)
    work = deviation * math.sqrt(cost)
    return Assessment(reward.gradient(position), gradients.mean(axis=0), error, deviation, cost, work)


@partial(jax.jit, static_argnames=("reward", "estimates"))
def _estimates(reward: PolicyGradient, point: Array, estimates: int, seed: int) -> tuple[Array, Array]:
    keys = jax.random.split(jax.random.key(seed), estimates)
    return lax.map(lambda key: reward.sample_with_cost(point, key), keys, batch_size=min(estimates, 2000))
