"""Numbers that say whether an answer means anything, and the sentences they turn into.

Do the points come from π, as the single-kernel learners assume? When π can be drawn from, the first two moments of
the points are held against those of draws. When it cannot, Stein's identity E[∇log π(θ) f(θ) + ∇f(θ)] = 0 is tested
for f = 1 and f = θ_j: it needs neither draws nor the normalisation, but a π that is positive everywhere, as the paper
assumes too. Either way there is one independent look per agent.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from scipy.special import ndtri

from onlooker.density import Density
from onlooker.inverse.base import InverseLearner, PoolInfo
from onlooker.observe.observation import Observations
from onlooker.observe.stream import Stream

__all__ = [
    "Convergence",
    "Occupancy",
    "agents_per_pool",
    "convergence",
    "kernel_ess",
    "occupancy",
    "reported",
    "rhat",
    "warn_about_chains",
    "warn_about_occupancy",
    "warn_about_pools",
]

# At most this many observations are looked at: the test is a matter of a glance.
LOOKED_AT = 100_000
# A false alarm once in 10 000 looks, and a departure of a tenth of a standard deviation before it matters.
FALSE_ALARM = 1e-4
SMALLEST_EFFECT = 0.1
# Below this many observations within reach of a chain its histogram is mostly injected noise.
FEWEST_OBSERVATIONS = 1000
# Below this many of a pool's observations that count, there is no average to speak of.
FEWEST_NEIGHBOURS = 1.5
# Beyond this many bandwidths the nearest observation of a pool is not a neighbour.
FARTHEST_NEIGHBOUR = 3.0
# Pools of 100 from 50 agents double the distance that those from 100 have on Example 1, 10 multiply it by five.
FEWEST_AGENTS = 50
MANY_AGENTS = 100
# Pools looked at for it.
POOLS_LOOKED_AT = 1000
# Below this many independent units nothing is said.
FEWEST_UNITS = 50
# Above this a single chain's histogram is not the ensemble's; the usual 1.01 is for those who want error bars.
LARGEST_RHAT = 1.2
# Chains agree, for those who want error bars, below this; together they should be worth so many independent draws.
CONVERGED_RHAT = 1.01
ENOUGH_DRAWS = 1000
# Up to this dimension every pair of coordinates is looked at.
MOST_PAIRED = 10


class Occupancy(NamedTuple):
    """How far the points are from π.

    Attributes
    ----------
    effect
        The largest difference of a moment from π's, in units of its standard deviation: 0 when θ ~ π.
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


def occupancy(observations: Observations, density: Density) -> Occupancy | None:
    """Test the observed points against π; ``None`` when there are too few to judge."""
    # Rows at random: every n-th one could be every agent's first.
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
    """Coordinates and their products, of both in the units of the draws."""
    centre, spread = draws.mean(axis=0), draws.std(axis=0) + 1e-12
    return _with_products((points - centre) / spread), _with_products((draws - centre) / spread)


def _with_products(scaled: np.ndarray) -> np.ndarray:
    return np.concatenate([scaled, scaled**2, *_pairs(scaled, scaled)], axis=1)


def _stein_moments(points: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """∇log π · f + ∇f in the points' own units: f = 1, then f = a coordinate."""
    centre, spread = points.mean(axis=0), points.std(axis=0) + 1e-12
    scaled, scores = (points - centre) / spread, scores * spread
    return np.concatenate([scores, scores * scaled + 1, *_pairs(scores, scaled)], axis=1)


def _pairs(one: np.ndarray, other: np.ndarray) -> list[np.ndarray]:
    """Products across coordinates, in few dimensions."""
    dim = one.shape[1]
    return [one[:, [i]] * other[:, i + 1 :] for i in range(dim - 1)] if dim <= MOST_PAIRED else []


@partial(jax.jit, static_argnames=("density",))
def _scores(density: Density, points: jax.Array) -> jax.Array:
    """∇log π at points (n, dim)."""
    return jax.vmap(jax.grad(density.log_prob))(points)


def _units(agents: np.ndarray | None, count: int) -> np.ndarray:
    """The independent unit each row belongs to: its agent, or one of a hundred stretches of the stream."""
    if agents is None:
        return np.arange(count) * min(100, count) // count
    return np.unique(agents, return_inverse=True)[1]


def _clustered_error(moments: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Standard error of the mean with whole units as the independent ones."""
    sums = np.zeros((unit.max() + 1, moments.shape[1]))
    np.add.at(sums, unit, moments - moments.mean(axis=0))
    return np.sqrt((sums**2).sum(axis=0)) / len(moments)


def warn_about_occupancy(learner: InverseLearner, stream: Stream) -> list[str]:
    """A sentence when a learner assumes a density that the recorded points do not have."""
    if learner.density is None or stream.observations is None:
        return []
    found = occupancy(stream.observations, learner.density)
    if found is None:
        return []
    if found.outside > 0:
        return [
            f"{found.outside:.1%} of the points lie where the density given is zero: it is not the density they came "
            f"from, and {learner.name} is biased."
        ]
    if not found.departs:
        return []
    return [
        f"the points do not follow the density given: a moment is {found.effect:.2f} standard deviations off "
        f"({found.significance:.0f} standard errors, chance allows {found.threshold:.1f}). "
        f"{learner.name} assumes that they do (assumption A2 of the paper; learners that run for a while drift away "
        "from where they start), so its answer is biased. Give the density of the points themselves, or watch only "
        "the starts."
    ]


def kernel_ess(weight: np.ndarray, weight_squared: np.ndarray) -> float:
    """(Σw)²/Σw²: how many observations a chain has really used, the median over chains."""
    used = np.divide(weight**2, weight_squared, out=np.zeros_like(weight), where=weight_squared > 0)
    return float(np.median(used))


def reported(sums: dict[str, np.ndarray], steps: int) -> dict[str, float]:
    """What the steps reported, (chain,) sums by name, as numbers about the run; lost chains are left out.

    The kernel ESS of single observations is over the run, that of pools over a pool, the mean over steps that reach it.
    """
    kept = np.isfinite(np.stack(list(sums.values()))).all(axis=0)
    sums = {name: total[kept] if kept.any() else total for name, total in sums.items()}
    means = {name: float(np.mean(total) / steps) for name, total in sums.items()}
    if "bandwidth" in sums:
        used = {"kernel_ess": means["kernel_ess"], "bandwidth_used": means["bandwidth"]}
        return {**used, "projected_share": means["projected"]}
    shares = {"nearest_distance": means["distance"], "projected_share": means["projected"]}
    if "weight" in sums:
        ess = kernel_ess(sums["weight"], sums["weight_squared"])
        return {"kernel_weight": means["weight"], "kernel_ess": ess, **shares}
    resets = round(float(np.sum(sums["reset"])))
    reached = means["kernel_ess"] / max(1 - means["empty"], 1e-9)
    return {"kernel_ess": reached, **shares, "empty_share": means["empty"], "resets": resets}


class Convergence(NamedTuple):
    """Whether chains agree and are long enough.

    Attributes
    ----------
    rhat
        Rank-normalised split rhat, the worst coordinate's; nan for too few samples.
    ess
        Effective number of draws of all chains together, the worst coordinate's.
    """

    rhat: float
    ess: float

    @property
    def reached(self) -> bool:
        return self.rhat < CONVERGED_RHAT and self.ess >= ENOUGH_DRAWS


def convergence(samples: np.ndarray) -> Convergence:
    """Of samples (chain, draw, dim)."""
    if not _enough(samples):
        return Convergence(math.nan, math.nan)
    # Takes half a second to import.
    from arviz_stats.base import array_stats

    # Coordinates that never move have none.
    with np.errstate(invalid="ignore", divide="ignore"):
        sizes = array_stats.ess(samples.astype(float), chain_axis=0, draw_axis=1, method="bulk")
    return Convergence(rhat(samples), float(np.min(sizes)))


def rhat(samples: np.ndarray) -> float:
    """Rank-normalised split rhat of samples (chain, draw, dim), the worst coordinate's; nan for too few."""
    if not _enough(samples):
        return math.nan
    from arviz_stats.base import array_stats

    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.max(array_stats.rhat(samples.astype(float), chain_axis=0, draw_axis=1, method="rank")))


def _enough(samples: np.ndarray) -> bool:
    return samples.shape[1] >= 4 and bool(np.isfinite(samples).all())


def warn_about_chains(
    diagnostics: dict[str, float], learner: InverseLearner, chains: int, shown: int | None = None
) -> list[str]:
    """Sentences about what the chains did; ``shown`` is how many of a pool they were shown, if not all."""
    warnings = []
    if shown is not None and diagnostics["kernel_ess"] > shown / 2:
        warnings.append(
            f"the simulator shows the nearest {shown} of a pool, but {diagnostics['kernel_ess']:.1f} of them count: "
            "others would too. Show more, or draw whole pools."
        )
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
    if diagnostics["rhat"] > LARGEST_RHAT:
        warnings.append(
            f"the chains disagree (rhat {diagnostics['rhat']:.2f}, near 1 when each has seen everything): each has "
            "explored a part, and together they may lean to where they started. Observe for longer, or take a larger "
            "step_size or bandwidth."
        )
    if learner.info is PoolInfo:
        warnings += _warn_about_neighbours(diagnostics, learner.settings.get("bandwidth", math.inf))
    elif learner.settings.get("bandwidth") and diagnostics["kernel_ess"] < FEWEST_OBSERVATIONS:
        warnings.append(
            f"the kernel gave a chain only {diagnostics['kernel_ess']:.0f} observations' worth of gradients: the "
            "samples say more about the noise than about the reward. Take a larger bandwidth or observe for longer."
        )
    return warnings


def _warn_about_neighbours(diagnostics: dict[str, float], bandwidth: float) -> list[str]:
    warnings = []
    if diagnostics["kernel_ess"] < FEWEST_NEIGHBOURS and diagnostics["empty_share"] < 0.5:
        warnings.append(
            f"the pools average nothing (kernel ESS {diagnostics['kernel_ess']:.2f}, below {FEWEST_NEIGHBOURS}): one "
            "observation takes all the weight wherever it lies. Take larger pools or a larger bandwidth; in many "
            "dimensions neither helps, and the chains follow the gradients of other places."
        )
    distance = diagnostics["nearest_distance"] / bandwidth
    if distance > FARTHEST_NEIGHBOUR:
        warnings.append(
            f"the nearest observation of a pool is {distance:.1f} bandwidths away on average (more than "
            f"{FARTHEST_NEIGHBOUR:g}): the gradients used belong to other places than the chains'."
        )
    if diagnostics["empty_share"] > 0.05:
        warnings.append(
            f"in {diagnostics['empty_share']:.0%} of the steps the kernel reached none of the pool and there was no "
            "drift: take a larger bandwidth or a Gaussian kernel."
        )
    if diagnostics["resets"]:
        warnings.append(f"chains were reset {diagnostics['resets']:.0f} times: what they sample is the reset rule's.")
    return warnings


def agents_per_pool(observations: Observations, size: int) -> float | None:
    """How many different agents a pool of consecutive rows has on average; ``None`` when nobody wrote that down."""
    if observations.agents is None:
        return None
    count = len(observations) // size
    some = np.random.default_rng(0).choice(count, min(count, POOLS_LOOKED_AT), replace=False)
    return float(np.mean([len(np.unique(observations.agents[pool * size : (pool + 1) * size])) for pool in some]))


def warn_about_pools(stream: Stream) -> list[str]:
    """A sentence when pools come from too few agents."""
    if stream.pool is None or stream.observations is None:
        return []
    agents = agents_per_pool(stream.observations, stream.pool)
    # Rows shuffled among MANY_AGENTS have the same agent twice now and then.
    expected = MANY_AGENTS * (1 - (1 - 1 / MANY_AGENTS) ** stream.pool)
    fewest = 0.9 * min(FEWEST_AGENTS, expected)
    if agents is None or agents >= fewest:
        return []
    return [
        f"a pool of {stream.pool} observations comes from {agents:.1f} agents on average (fewer than "
        f"{fewest:.0f}): consecutive rows of an agent are one place seen again and again, and the "
        "answer is biased. Shuffle the rows, or interleave agents."
    ]
