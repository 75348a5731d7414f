"""Diagnostics of a run: whether the points follow π, whether pools mix agents, whether chains agree; and the warnings.

The single-kernel learners assume that the points come from π. When π can be drawn from, the first two moments of the
points are compared with those of draws. When it cannot, Stein's identity E[∇log π(θ) f(θ) + ∇f(θ)] = 0 is tested for
f = 1 and f = θ_j: it needs neither draws nor the normalisation, but a π that is positive everywhere, as the paper
assumes too. Either way agents count as the independent units.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from scipy.special import ndtri

from onlooker.core.density import Density
from onlooker.core.messages import Message
from onlooker.data.observations import Observations
from onlooker.data.stream import Stream
from onlooker.inverse.base import InverseLearner
from onlooker.inverse.reports import Summary, Totals

__all__ = [
    "Convergence",
    "Occupancy",
    "agents_per_pool",
    "convergence",
    "occupancy",
    "rhat",
    "summarised",
    "warn_about_occupancy",
    "warn_about_pools",
]

# Most observations that are tested, and the number of draws of π: the test must be quick beside any run.
LOOKED_AT = 100_000
# One false alarm in 10 000 tests; departures below a tenth of a standard deviation do not matter.
FALSE_ALARM = 1e-4
SMALLEST_EFFECT = 0.1
# On Example 1, pools of 100 from 50 agents double the distance to the exact law that pools from 100 agents have; pools
# from 10 agents multiply it by five.
FEWEST_AGENTS = 50
MANY_AGENTS = 100
# Most pools whose agents are counted.
POOLS_LOOKED_AT = 1000
# With fewer independent units the points are not tested.
FEWEST_UNITS = 50
# Above it a single chain's histogram differs from the ensemble's; the usual 1.01 is for error bars.
LARGEST_RHAT = 1.2
# The usual bounds for error bars: rhat below, and effective number of draws above.
CONVERGED_RHAT = 1.01
ENOUGH_DRAWS = 1000
# Largest dimension in which every pair of coordinates is tested.
MOST_PAIRED = 10


class Occupancy(NamedTuple):
    """How far the moments of the points are from π's.

    Attributes
    ----------
    effect
        The largest difference of a moment from π's, in units of its standard deviation: 0 when θ ~ π.
    significance
        The same difference in standard errors, with agents as the independent units.
    threshold
        The significance that chance allows, at a false-alarm rate of 1e-4 over all moments tested.
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


def occupancy(observations: Observations, density: Density) -> Occupancy | None:
    """Test the observed points against π; ``None`` when there are too few to judge."""
    # Random rows: every n-th row could be an agent's first.
    count = len(observations)
    rows = np.random.default_rng(0).choice(count, LOOKED_AT, replace=False) if count > LOOKED_AT else np.arange(count)
    rows.sort()
    points = np.asarray(observations.points[rows], np.float32)
    unit = _units(None if observations.agents is None else observations.agents[rows], len(rows))
    inside = density.is_positive(points)
    outside = float(1 - inside.mean())
    nothing = Occupancy(0.0, 0.0, 0.0, outside) if outside else None
    if len(np.unique(unit[inside])) < FEWEST_UNITS:
        return nothing
    points, unit = points[inside].astype(float), unit[inside]
    if density.sample is not None:
        moments, expected = _moments(points, np.asarray(density.sample(jax.random.key(0), (LOOKED_AT,)), float))
        spread, difference = expected.std(axis=0), moments.mean(axis=0) - expected.mean(axis=0)
        error = np.hypot(_clustered_error(moments, unit), spread / np.sqrt(len(expected)))
    else:
        moments = _stein_moments(points, np.asarray(_scores(density, points.astype(np.float32)), float))
        error, spread, difference = _clustered_error(moments, unit), moments.std(axis=0), moments.mean(axis=0)
    tested = (spread > 1e-9) & (error > 1e-12)
    if not tested.any():
        return nothing
    effect, significance = (np.abs(difference[tested]) / scale[tested] for scale in (spread, error))
    threshold = -float(ndtri(FALSE_ALARM / 2 / tested.sum()))
    worst = int(np.argmax(np.where(significance > threshold, effect, 0) + 1e-9 * effect))
    return Occupancy(float(effect[worst]), float(significance[worst]), threshold, outside)


def _moments(points: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates and their products, of points and of draws, in the units of the draws."""
    centre, spread = draws.mean(axis=0), draws.std(axis=0) + 1e-12
    return _with_products((points - centre) / spread), _with_products((draws - centre) / spread)


def _with_products(scaled: np.ndarray) -> np.ndarray:
    return np.concatenate([scaled, scaled**2, *_pairs(scaled, scaled)], axis=1)


def _stein_moments(points: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """∇log π · f + ∇f in the points' own units: f = 1, then f = a coordinate."""
    centre, spread = points.mean(axis=0), points.std(axis=0) + 1e-12
    scaled, scores = (points - centre) / spread, scores * spread
    return np.concatenate([scores, scores * scaled + 1, *_pairs(scores, scaled)], axis=1)


def _pairs(left: np.ndarray, right: np.ndarray) -> list[np.ndarray]:
    """Products of every two coordinates, in few dimensions."""
    dim = left.shape[1]
    return [left[:, [i]] * right[:, i + 1 :] for i in range(dim - 1)] if dim <= MOST_PAIRED else []


@partial(jax.jit, static_argnames=("density",))
def _scores(density: Density, points: jax.Array) -> jax.Array:
    """∇log π at points (n, dim)."""
    return jax.vmap(jax.grad(density.log_prob))(points)


def _units(agents: np.ndarray | None, count: int) -> np.ndarray:
    """The independent unit of each row: its agent, or one of a hundred stretches of the stream."""
    if agents is None:
        return np.arange(count) * min(100, count) // count
    return np.unique(agents, return_inverse=True)[1]


def _clustered_error(moments: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Standard error of the mean, with rows of a unit correlated and units independent."""
    sums = np.zeros((unit.max() + 1, moments.shape[1]))
    np.add.at(sums, unit, moments - moments.mean(axis=0))
    return np.sqrt((sums**2).sum(axis=0)) / len(moments)


def warn_about_occupancy(learner: InverseLearner, stream: Stream) -> list[Message]:
    """A warning when a learner assumes a density that the recorded points do not have."""
    if learner.density is None or stream.observations is None:
        return []
    measured = occupancy(stream.observations, learner.density)
    if measured is None:
        return []
    if measured.outside > 0:
        text = (
            f"{measured.outside:.1%} of the points lie where the given density is zero: they do not come from it, and "
            f"{learner.name} is biased."
        )
        return [Message("density-zero", text, {"outside": measured.outside})]
    if not measured.departs:
        return []
    text = (
        f"the points do not follow the given density: a moment is {measured.effect:.2f} standard deviations off "
        f"({measured.significance:.0f} standard errors, chance allows {measured.threshold:.1f}). "
        f"{learner.name} assumes that they do (assumption A2 of the paper; learners that run for a while drift away "
        "from where they start), so its answer is biased. Give the density of the points themselves, or observe only "
        "the starts."
    )
    return [Message("density-mismatch", text, measured._asdict())]


class Convergence(NamedTuple):
    """Whether chains agree and are long enough.

    Attributes
    ----------
    rhat
        Rank-normalised split rhat of the worst coordinate; nan for too few samples.
    ess
        Effective number of draws of all chains together, of the worst coordinate.
    """

    rhat: float
    ess: float

    @property
    def reached(self) -> bool:
        return self.rhat < CONVERGED_RHAT and self.ess >= ENOUGH_DRAWS


def convergence(samples: np.ndarray) -> Convergence:
    """The convergence of samples (chain, draw, dim)."""
    if not _enough(samples):
        return Convergence(math.nan, math.nan)
    from arviz_stats.base import array_stats

    # A coordinate that never moves has no ESS.
    with np.errstate(invalid="ignore", divide="ignore"):
        sizes = array_stats.ess(samples.astype(float), chain_axis=0, draw_axis=1, method="bulk")
    return Convergence(rhat(samples), float(np.min(sizes)))


def rhat(samples: np.ndarray) -> float:
    """Rank-normalised split rhat of samples (chain, draw, dim), of the worst coordinate; nan for too few."""
    if not _enough(samples):
        return math.nan
    from arviz_stats.base import array_stats

    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.max(array_stats.rhat(samples.astype(float), chain_axis=0, draw_axis=1, method="rank")))


def _enough(samples: np.ndarray) -> bool:
    return samples.shape[1] >= 4 and bool(np.isfinite(samples).all())


def summarised(
    learner: InverseLearner,
    sums: dict[str, np.ndarray],
    steps: int,
    samples: np.ndarray,
    positions: np.ndarray,
    shown: int | None,
) -> Summary:
    """Diagnostics and warnings of a run: those of the learner's reports, and those of its chains.

    Parameters
    ----------
    learner
        The learner, whose ``info`` summarises the reports of its steps.
    sums
        Sums of the reports by name, (chain,); chains whose sums are not finite are left out.
    steps
        Number of steps.
    samples
        (chain, draw, dim).
    positions
        (chain, dim): the chains' last positions.
    shown
        Number of observations that the stream shows of a pool; ``None`` for all.
    """
    kept = np.isfinite(np.stack(list(sums.values()))).all(axis=0)
    totals = Totals(
        {name: total[kept] if kept.any() else total for name, total in sums.items()}, steps, learner.settings, shown
    )
    own, warnings = learner.info.summary(totals)
    lost = int(np.count_nonzero(~np.isfinite(positions).all(axis=1)))
    diagnostics = {**own, "rhat": rhat(samples), "lost_chains": lost}
    return Summary(diagnostics, [*_about_chains(diagnostics, len(positions)), *warnings])


def _about_chains(diagnostics: dict[str, float], chains: int) -> list[Message]:
    warnings: list[Message] = []
    if diagnostics["lost_chains"]:
        text = (
            f"{diagnostics['lost_chains']:.0f} of {chains} chains reached NaN or infinite positions: take a "
            "smaller step_size, a larger bandwidth, or confine them to a ball."
        )
        warnings.append(Message("chains-lost", text, {"lost": diagnostics["lost_chains"], "chains": chains}))
    if diagnostics["rhat"] > LARGEST_RHAT:
        text = (
            f"the chains disagree (rhat {diagnostics['rhat']:.2f}, near 1 when they agree): each has explored a part, "
            "and together they may depend on where they started. Observe for longer, or take a larger "
            "step_size or bandwidth."
        )
        warnings.append(Message("chains-disagree", text, {"rhat": diagnostics["rhat"]}))
    return warnings


def agents_per_pool(observations: Observations, size: int) -> float | None:
    """Mean number of different agents in a pool of consecutive rows; ``None`` when the agents are unknown."""
    if observations.agents is None:
        return None
    count = len(observations) // size
    pools = np.random.default_rng(0).choice(count, min(count, POOLS_LOOKED_AT), replace=False)
    return float(np.mean([len(np.unique(observations.agents[pool * size : (pool + 1) * size])) for pool in pools]))


def warn_about_pools(stream: Stream) -> list[Message]:
    """A warning when pools come from too few agents."""
    if stream.pool is None or stream.observations is None:
        return []
    agents = agents_per_pool(stream.observations, stream.pool)
    # The number of different agents in a pool of rows shuffled among MANY_AGENTS.
    expected = MANY_AGENTS * (1 - (1 - 1 / MANY_AGENTS) ** stream.pool)
    fewest = 0.9 * min(FEWEST_AGENTS, expected)
    if agents is None or agents >= fewest:
        return []
    text = (
        f"a pool of {stream.pool} observations comes from {agents:.1f} agents on average (fewer than "
        f"{fewest:.0f}): consecutive rows of an agent show nearly the same point, and the answer "
        "is biased. Shuffle the rows, or interleave agents."
    )
    return [Message("pools-alike", text, {"pool": stream.pool, "agents": agents})]
