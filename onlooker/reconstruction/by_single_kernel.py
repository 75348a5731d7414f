"""Methods "passive" and "reweighted" of the paper: chains over a record, with μ and Δ chosen from the data.

Both need the density π of the points.
"""

import jax.numpy as jnp
import numpy as np

from onlooker.core.density import Density, as_density
from onlooker.core.kernels import gaussian
from onlooker.core.messages import Message
from onlooker.data.observations import Observations
from onlooker.data.stream import recorded
from onlooker.engine.accumulators import Grid, Marginals
from onlooker.engine.run import Chains, run
from onlooker.fit.grid_reward import GRID_BINS, GridReward, SamplesOnly
from onlooker.inverse import ball, passive, reweighted
from onlooker.reconstruction.draws import Findings, given
from onlooker.reconstruction.options import Options, some_of
from onlooker.reconstruction.result import Reconstruction

__all__ = ["by_single_kernel"]

# Largest ratio of gradient noise to injected noise when μ is chosen here: samples are then too wide by a seventh.
NOISE_SHARE = 0.3


def by_single_kernel(method: str, seen: Observations, warnings: list[Message], options: Options) -> Reconstruction:
    """Run chains over the record once."""
    if options.density is None:
        raise ValueError(
            f"density is missing: method {method!r} needs the density of the points, such as "
            "numpyro.distributions.Normal(0, 1).expand([dim]).to_event(1)."
        )
    pi, beta = as_density(options.density), options.beta
    pi.check(seen.dim)
    width = _bandwidth(seen) if options.bandwidth is None else options.bandwidth
    step = _step_size(seen, pi, method, width, beta) if options.step_size is None else options.step_size
    if method == "reweighted":
        centre = seen.points.mean(axis=0, dtype=float)
        radius = float(np.linalg.norm(seen.points - centre, axis=1).max())
        learner = reweighted(pi, step_size=step, bandwidth=width, beta=beta, confine=ball(radius, centre.tolist()))
    else:
        learner = passive(pi, step_size=step, bandwidth=width, beta=beta)
    low, high = seen.points.min(axis=0), seen.points.max(axis=0)
    low, high = np.where(low < high, low, low - 1), np.where(low < high, high, high + 1)
    small = seen.dim in GRID_BINS
    result = run(
        learner,
        recorded(seen),
        chains=options.chains,
        seed=options.seed,
        grid=Grid(tuple(low.tolist()), tuple(high.tolist())) if small else None,
        marginals=None if small else Marginals(float(low.min()), float(high.max()), 40),
        burn_in=len(seen) // 4,
    )
    fitted = SamplesOnly(seen.dim, learner.name) if result.histogram is None else GridReward(result.histogram, beta)
    diagnostics = {
        **result.diagnostics,
        "observations": len(seen),
        "rejected": seen.rejected,
        **_numbers(result),
        **options.about,
    }
    found, carried = Findings(diagnostics, [*warnings, *result.warnings]), some_of(seen, options.seed)
    return Reconstruction(learner.name, fitted, found, given(result.samples), carried, _chains=result)


def _numbers(result: Chains) -> dict[str, float]:
    return {name: value for name, value in result.settings.items() if isinstance(value, int | float)}


def _bandwidth(seen: Observations) -> float:
    """Half the points' spread at 1000 rows, times n^(−1/(N+4)), the optimal rate of kernel regression."""
    spread = float(np.mean(seen.points.std(axis=0, dtype=float)))
    return 0.5 * spread * (len(seen) / 1000) ** (-1 / (seen.dim + 4))


def _step_size(seen: Observations, density: Density, method: str, bandwidth: float, beta: float) -> float:
    """The largest μ whose gradient noise is NOISE_SHARE of the injected noise and whose steps are half a bandwidth."""
    from scipy.spatial.distance import cdist

    generator = np.random.default_rng(0)
    rows = generator.choice(len(seen), size=min(len(seen), 20_000), replace=False)
    positions = seen.points[generator.choice(rows, size=min(len(rows), 200), replace=False)]
    points, strength = seen.points[rows], (seen.gradients[rows] ** 2).mean(axis=1)
    squared = cdist(positions, points, "sqeuclidean") / bandwidth**2
    log_peak = float(gaussian.log(jnp.zeros(seen.dim), bandwidth))
    # E[K² g²] where the chains may be. The speed of the passive chain is π; the weight of reweighted is 1/π.
    noise = np.exp(2 * log_peak) * (np.exp(-squared) * strength).mean(axis=1)
    pi = np.exp(density.log_probs(positions))
    if not pi.max() > 1e-30:
        raise ValueError("density is zero or underflows at the points; give the density they were drawn from.")
    speed = pi if method == "passive" else np.ones_like(pi)
    share = beta**2 / 4 * noise * (speed / np.maximum(pi, 1e-12)) ** 2
    by_noise = NOISE_SHARE / (float(np.quantile(share, 0.9)) + 1e-12)
    by_length = (bandwidth / 2 / float(speed.max())) ** 2
    return min(by_noise, by_length)
