"""Offline: observations in, a Reconstruction out."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import cdist

from onlooker.check import check_positive
from onlooker.density import Density, as_density
from onlooker.inverse import ball, passive, reweighted
from onlooker.kernels import gaussian
from onlooker.observe.observation import Observations, observe
from onlooker.observe.stream import recorded
from onlooker.reward import plots
from onlooker.reward.accumulate import Grid, Marginals
from onlooker.reward.estimate import RewardEstimate
from onlooker.run import Chains, run

__all__ = ["Reconstruction", "reconstruct"]

METHODS = ("auto", "passive", "reweighted")
# The share of the diffusion that gradient noise may have when μ is chosen here.
NOISE_SHARE = 0.3
FEWEST = 50


@dataclass(frozen=True)
class Reconstruction:
    """A reconstructed reward.

    Attributes
    ----------
    method
        The inverse learner that was used.
    chains
        The run behind it.
    estimate
        R̂ on a grid, for dim ≤ 3.
    diagnostics, warnings
        Numbers about the run, and sentences a user should read.
    """

    method: str
    chains: Chains
    estimate: RewardEstimate | None
    diagnostics: dict[str, float]
    warnings: list[str]

    @property
    def samples(self) -> np.ndarray:
        """(chain, draw, dim), thinned."""
        return self.chains.samples

    def reward(self, x: Any) -> np.ndarray:
        """R̂ at x (n, dim), up to a constant; nan where `explored` is false."""
        return self._grid()(x)

    def explored(self, x: Any) -> np.ndarray:
        """Whether the chains have been at x (n, dim)."""
        return self._grid().explored(x)

    def plot(self) -> Any:
        """A matplotlib Figure: R̂ in two dimensions, the chains' traces otherwise."""
        if self.estimate is not None and len(self.estimate.centres) == 2:
            return plots.reward_map(self.estimate)
        return plots.trace(self.samples, self.chains.sample_every)

    def _grid(self) -> RewardEstimate:
        if self.estimate is None:
            dim = self.chains.positions.shape[1]
            raise ValueError(
                f"R̂ in {dim} dimensions needs a method that fits a potential; {self.method} has samples only."
            )
        return self.estimate


def reconstruct(
    points: Any,
    gradients: Any = None,
    *,
    agents: Any = None,
    times: Any = None,
    learning_rate: float | None = None,
    descent: bool = False,
    density: Any = None,
    beta: float = 1.0,
    method: str = "auto",
    step_size: float | None = None,
    bandwidth: float | None = None,
    chains: int = 64,
    seed: int = 0,
) -> Reconstruction:
    """Reconstruct the reward that gradient learners maximise.

    Parameters
    ----------
    points, gradients, agents, times, learning_rate, descent
        What was seen; see `observe`.
    density
        π, the density the points come from: a distribution with ``log_prob`` or a log-density function.
    beta
        β: chains sample exp(βR). Larger sharpens the picture around the maxima.
    method
        "passive" or "reweighted"; "auto" means "passive".
    step_size, bandwidth
        μ and Δ; by default chosen from the data.
    chains, seed
        How many chains pass over the observations, and their noise.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(METHODS)}.")
    if density is None:
        raise ValueError(
            "density is missing: passive and reweighted need the density the points come from, "
            "such as numpyro.distributions.Normal(0, 1).expand([dim]).to_event(1)."
        )
    check_positive(
        beta=beta,
        **{name: given for name, given in (("step_size", step_size), ("bandwidth", bandwidth)) if given is not None},
    )
    method = "passive" if method == "auto" else method
    seen = observe(points, gradients, agents=agents, times=times, learning_rate=learning_rate, descent=descent)
    if len(seen) < FEWEST:
        raise ValueError(f"points holds {len(seen)} usable observations; a reconstruction needs at least {FEWEST}.")
    pi = as_density(density)
    pi.check(seen.dim)
    width = _bandwidth(seen) if bandwidth is None else bandwidth
    step = _step_size(seen, pi, method, width, beta) if step_size is None else step_size
    if method == "reweighted":
        centre = seen.points.mean(axis=0)
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
        chains=chains,
        seed=seed,
        grid=Grid(tuple(low.tolist()), tuple(high.tolist())) if small else None,
        marginals=None if small else Marginals(float(low.min()), float(high.max()), 40),
        burn_in=len(seen) // 4,
    )
    estimate = None if result.histogram is None else RewardEstimate(result.histogram, beta)
    diagnostics = {**result.diagnostics, "observations": len(seen), "refused": seen.refused, **_numbers(result)}
    return Reconstruction(learner.name, result, estimate, diagnostics, [*seen.notes, *result.warnings])


def _numbers(result: Chains) -> dict[str, float]:
    return {name: value for name, value in result.settings.items() if isinstance(value, int | float)}


def _bandwidth(seen: Observations) -> float:
    """Half the points' spread, shrinking as n^(−1/(N+4)) like the best kernel regression does."""
    spread = float(np.mean(seen.points.std(axis=0)))
    if spread == 0:
        raise ValueError("points are all equal; a reward cannot be reconstructed from one place.")
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
