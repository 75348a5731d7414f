"""Numbers that say whether an answer means anything, and the sentences they turn into.

Do the points come from π, as the single-kernel learners assume? Under π, Stein's identity
E[∇log π(θ) f(θ) + ∇f(θ)] = 0 holds for every f; it needs neither draws from π nor its normalisation. It is tested for
f = 1 and f = θ_j, with one independent look per agent.
"""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from scipy.stats import norm

from onlooker.density import Density
from onlooker.inverse.base import InverseLearner
from onlooker.observe.observation import Observations
from onlooker.observe.stream import Stream

__all__ = ["Occupancy", "kernel_ess", "occupancy", "warn_about_chains", "warn_about_occupancy"]

# At most this many observations are looked at: the test is a matter of a glance.
LOOKED_AT = 100_000
# A false alarm once in 10 000 looks, and a departure of a tenth of a standard deviation before it matters.
FALSE_ALARM = 1e-4
SMALLEST_EFFECT = 0.1
# Below this many observations within reach of a chain its histogram is mostly injected noise.
FEWEST_OBSERVATIONS = 1000
# Up to this dimension every pair of coordinates is looked at.
MOST_PAIRED = 10


class Occupancy(NamedTuple):
    """How far the points are from π.

    Attributes
    ----------
    effect
        The largest Stein moment in units of its standard deviation over points: 0 when θ ~ π.
    significance
        The same in standard errors, agents counted as the independent units.
    threshold
        What chance allows, at a false-alarm rate of 1e-4 over all the moments looked at.
    outside
        Share of points where the density is zero.
    """

    effect: float
    significance: float
    threshold: float
    outside: float

    @property
    def departs(self) -> bool:
        return self.outside > 0 or (self.significance > self.threshold and self.effect > SMALLEST_EFFECT)


def occupancy(observations: Observations, density: Density) -> Occupancy:
    """Test the observed points against π."""
    # Rows at random: every n-th one could be every agent's first.
    count = len(observations)
    rows = np.random.default_rng(0).choice(count, LOOKED_AT, replace=False) if count > LOOKED_AT else np.arange(count)
    rows.sort()
    points = np.asarray(observations.points[rows], np.float32)
    log_prob, score = _scores(density, points)
    inside = np.asarray(log_prob) > -np.inf
    if inside.sum() < 2:
        return Occupancy(np.inf, np.inf, 0.0, float(1 - inside.mean()))
    places, scores = points[inside].astype(float), np.asarray(score, float)[inside]
    centre, spread = places.mean(axis=0), places.std(axis=0) + 1e-12
    scaled = (places - centre) / spread
    dim = places.shape[1]
    # ∇log π · f + ∇f in the points' own units: f = 1, then f = a coordinate (its own; in few dimensions, each).
    scores = scores * spread
    own = scores * scaled + 1
    pairs = [scores[:, [i]] * np.delete(scaled, i, axis=1) for i in range(dim)] if dim <= MOST_PAIRED else []
    moments = np.concatenate([scores, own, *pairs], axis=1)
    effect = np.abs(moments.mean(axis=0)) / (moments.std(axis=0) + 1e-12)
    agents = None if observations.agents is None else observations.agents[rows][inside]
    error = _clustered_error(moments, agents)
    significance = np.abs(moments.mean(axis=0)) / (error + 1e-12)
    threshold = float(norm.isf(FALSE_ALARM / 2 / moments.shape[1]))
    worst = int(np.argmax(np.where(significance > threshold, effect, 0) + 1e-9 * effect))
    return Occupancy(float(effect[worst]), float(significance[worst]), threshold, float(1 - inside.mean()))


@partial(jax.jit, static_argnames=("density",))
def _scores(density: Density, points: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log π and ∇log π at points (n, dim)."""
    return jax.vmap(jax.value_and_grad(density.log_prob))(points)


def _clustered_error(moments: np.ndarray, agents: np.ndarray | None) -> np.ndarray:
    """Standard error of the mean with whole agents, or a hundred stretches of the stream, as units."""
    if agents is None:
        unit = np.arange(len(moments)) * min(100, len(moments)) // len(moments)
    else:
        unit = np.unique(agents, return_inverse=True)[1]
    sums = np.zeros((unit.max() + 1, moments.shape[1]))
    np.add.at(sums, unit, moments - moments.mean(axis=0))
    return np.sqrt((sums**2).sum(axis=0)) / len(moments)


def warn_about_occupancy(learner: InverseLearner, stream: Stream) -> list[str]:
    """A sentence when a learner assumes a density that the recorded points do not have."""
    if learner.density is None or stream.observations is None:
        return []
    found = occupancy(stream.observations, learner.density)
    if found.outside > 0:
        return [
            f"{found.outside:.1%} of the points lie where the density given is zero: it is not the density they came "
            f"from, and {learner.name} is biased."
        ]
    if not found.departs:
        return []
    return [
        f"the points do not follow the density given: a Stein moment that should be 0 is {found.effect:.2f} standard "
        f"deviations off ({found.significance:.0f} standard errors, chance allows {found.threshold:.1f}). "
        f"{learner.name} assumes that they do (assumption A2 of the paper; learners that run for a while drift away "
        "from where they start), so its answer is biased. Give the density of the points themselves, or watch only "
        "the starts."
    ]


def kernel_ess(weight: np.ndarray, weight_squared: np.ndarray) -> float:
    """(Σw)²/Σw²: how many observations a chain has really used, the median over chains."""
    used = np.divide(weight**2, weight_squared, out=np.zeros_like(weight), where=weight_squared > 0)
    return float(np.median(used))


def warn_about_chains(diagnostics: dict[str, float], learner: InverseLearner, chains: int) -> list[str]:
    """Sentences about what the chains did."""
    warnings = []
    if diagnostics["lost_chains"]:
        warnings.append(
            f"{diagnostics['lost_chains']:.0f} of {chains} chains left the numbers (NaN or infinite positions): take a "
            "smaller step_size, a larger bandwidth, or confine them to a ball."
        )
    if diagnostics["projected_share"] > 0.05:
        warnings.append(
            f"chains were pushed back by their confinement in {diagnostics['projected_share']:.0%} of the steps: the "
            "law near its edge is the edge's, not the reward's."
        )
    if learner.settings.get("bandwidth") and diagnostics["kernel_ess"] < FEWEST_OBSERVATIONS:
        warnings.append(
            f"the kernel gave a chain only {diagnostics['kernel_ess']:.0f} observations' worth of gradients: the "
            "samples say more about the noise than about the reward. Take a larger bandwidth or observe for longer."
        )
    return warnings
