"""The paper's `passive` and `reweighted` over a record, with μ and Δ chosen from the data; they need the density π."""

import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import cdist

from onlooker.density import Density, as_density
from onlooker.inverse import ball, passive, reweighted
from onlooker.kernels import gaussian
from onlooker.methods.options import Options, some_of
from onlooker.observe.observation import Observations
from onlooker.observe.stream import recorded
from onlooker.reconstruction import Reconstruction
from onlooker.reward.accumulate import Grid, Marginals
from onlooker.reward.estimate import RewardEstimate
from onlooker.run import Chains, run

__all__ = ["by_single_kernel"]

# The share of the diffusion that gradient noise may have when μ is chosen here.
NOISE_SHARE = 0.3


def by_single_kernel(method: str, seen: Observations, doubts: list[str], options: Options) -> Reconstruction:
    """One pass of chains over the record."""
    if options.density is None:
        raise ValueError(
            f"density is missing: {method} needs the density the points come from, such as "
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
    small = seen.dim <= 3
    result = run(
        learner,
        recorded(seen),
        chains=options.chains,
        seed=options.seed,
        grid=Grid(tuple(low.tolist()), tuple(high.tolist())) if small else None,
        marginals=None if small else Marginals(float(low.min()), float(high.max()), 40),
        burn_in=len(seen) // 4,
    )
    estimate = None if result.histogram is None else RewardEstimate(result.histogram, beta)
    diagnostics = {
        **result.diagnostics,
        "observations": len(seen),
        "refused": seen.refused,
        **_numbers(result),
        **options.about,
    }
    warnings, carried = [*doubts, *result.warnings], some_of(seen, options.seed)
    return Reconstruction(learner.name, result.samples, diagnostics, warnings, None, estimate, result, carried)


def _numbers(result: Chains) -> dict[str, float]:
    return {name: value for name, value in result.settings.items() if isinstance(value, int | float)}


def _bandwidth(seen: Observations) -> float:
    """Half the points' spread, shrinking as n^(−1/(N+4)) like the best kernel regression does."""
    spread = float(np.mean(seen.points.std(axis=0, dtype=float)))
    return 0.5 * spread * (len(seen) / 1000) ** (-1 / (seen.dim + 4))


def _step_size(seen: Observations, density: Density, method: str, bandwidth: float, beta: float) -> float:
    """The largest μ with gradient noise a stated share of the injected noise, and steps within half a bandwidth."""
    generator = np.random.default_rng(0)
    rows = generator.choice(len(seen), size=min(len(seen), 20_000), replace=False)
    places = seen.points[generator.choice(rows, size=min(len(rows), 200), replace=False)]
    points, strength = seen.points[rows], (seen.gradients[rows] ** 2).mean(axis=1)
    squared = cdist(places, points, "sqeuclidean") / bandwidth**2
    log_peak = float(gaussian.log(jnp.zeros(seen.dim), bandwidth))
    # E[K² g²] where the chains may be; π is the passive chain's speed, and reweighted's weight is 1/π.
    noise = np.exp(2 * log_peak) * (np.exp(-squared) * strength).mean(axis=1)
    pi = np.exp(density.log_probs(places))
    if not pi.max() > 1e-30:
        raise ValueError("density is zero, or too small to compute with, where the points are; give the points' own.")
    speed = pi if method == "passive" else np.ones_like(pi)
    share = beta**2 / 4 * noise * (speed / np.maximum(pi, 1e-12)) ** 2
    by_noise = NOISE_SHARE / (float(np.quantile(share, 0.9)) + 1e-12)
    by_length = (bandwidth / 2 / float(speed.max())) ** 2
    return min(by_noise, by_length)
