"""The rewards of Sec. 5 that jump, and the time that a learner needs to recover.

In one dimension R(·, i) = −(a ± .8)²/(2·.45²), switched by I + ηQ; in two, Example 1 with one parameter or another.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np

from onlooker.core.density import Density, as_density, standard_normal
from onlooker.engine.accumulators import Grid
from onlooker.simulation.exact.fokker_planck import evolve, generator
from onlooker.simulation.exact.law import cells, exact_law
from onlooker.simulation.mixture import Mixture
from onlooker.simulation.reward import NoisyReward, Reward

__all__ = ["clipped_density", "jumping_mixture", "jumping_pair", "mixture_recovery"]

# σ² and the two maxima of the pair of rewards.
VARIANCE, PLACES = 0.45**2, (-0.8, 0.8)
GENERATOR = np.array([[-1.0, 1.0], [2.0, -2.0]])
EVEN = (0.5, 0.5)
DENSITY = standard_normal(1, 1.5)
STEP_SIZE, BANDWIDTH = 2e-3, 0.1
AXIS = cells(-3.5, 3.5, 0.01)
GRID = Grid((-3.5,), (3.5,), 35)
# Recovery time, μ times the number of steps until the mean of an ensemble is 1/e of the jump from its new place: the
# relaxation time of dα = −α/(2σ²) dt.
RECOVERY = 2 * VARIANCE
# The step size of Example 1, and the true parameters between which its reward jumps.
MIXTURE_STEP_SIZE = 5e-4
TRUTHS = ((0.0, 1.0), (1.0, 1.0))


def jumping_pair(noise: float = 1.0) -> tuple[Reward, ...]:
    """The two rewards in one dimension."""

    def about(place: float) -> NoisyReward:
        return NoisyReward(1, lambda x: -((x[0] - place) ** 2) / (2 * VARIANCE), noise)

    return tuple(map(about, PLACES))


def clipped_density() -> Density:
    """π, but at least 1e-3: in its tails 1/π throws chains out."""
    return as_density(lambda x: jnp.maximum(DENSITY.log_prob(x), jnp.log(1e-3)))


def jumping_mixture() -> tuple[Mixture, ...]:
    """Example 1 with either of two true parameters."""
    return tuple(Mixture(truth=truth) for truth in TRUTHS)


@cache
def mixture_recovery() -> float:
    """The recovery time of the mixture, from the Fokker–Planck equation of dα = ½∇R dt + dW between its two laws."""
    axis = cells(-4, 4, 0.05)
    before, after = jumping_mixture()
    law, new = (exact_law(reward.value, (axis, axis)) for reward in (before, after))
    drift = after.gradient_moments(np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1))[0] / 2
    matrix = generator((axis, axis), drift, np.broadcast_to(np.eye(2), (*drift.shape, 2)))
    times, offsets = np.arange(0, 0.5, 0.02), [np.linalg.norm(law.mean - new.mean)]
    for _ in times[1:]:
        law = evolve(law, matrix, 0.02, steps=8)
        offsets.append(np.linalg.norm(law.mean - new.mean))
    return float(np.interp(-np.exp(-1), -np.array(offsets) / offsets[0], times))
