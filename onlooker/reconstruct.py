"""Offline: observations in, a Reconstruction out."""

import time
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import cdist

from onlooker.check import check_positive, check_whole
from onlooker.density import Density, as_density
from onlooker.field.ridge import RidgePotential, fit_ridge
from onlooker.field.smooth import SmoothPotential, fit_smooth
from onlooker.inverse import ball, passive, reweighted
from onlooker.kernels import gaussian
from onlooker.observe.observation import Observations, observe
from onlooker.observe.quality import held_out, inspect
from onlooker.observe.stream import recorded
from onlooker.reward import plots
from onlooker.reward.accumulate import Grid, Histogram, Marginals
from onlooker.reward.diagnostics import rhat
from onlooker.reward.estimate import RewardEstimate
from onlooker.run import Chains, run

__all__ = ["Reconstruction", "reconstruct"]

METHODS = ("auto", "potential", "passive", "reweighted")
# The share of the diffusion that gradient noise may have when μ is chosen here.
NOISE_SHARE = 0.3
FEWEST = 50
# Draws of a fitted potential per chain, after as many to forget the start when they come from a Markov chain.
DRAWS = 500
WARMUP = 200
# βR should span neither so little nor so much over the data that its law is flat, or one point.
LEAST_SPAN, MOST_SPAN = 0.5, 50.0
LARGEST_RHAT = 1.05


@dataclass(frozen=True)
class Reconstruction:
    """A reconstructed reward.

    Attributes
    ----------
    method
        What was used.
    samples
        (chain, draw, dim) of exp(βR̂), thinned.
    potential
        The fitted reward, of method "potential".
    chains
        The run behind the samples, of the other methods.
    estimate
        R̂ on a grid, of the other methods, for dim ≤ 3.
    diagnostics, warnings
        Numbers about it, and sentences a user should read.
    """

    method: str
    samples: np.ndarray
    diagnostics: dict[str, Any]
    warnings: list[str]
    potential: SmoothPotential | RidgePotential | None = None
    chains: Chains | None = None
    estimate: RewardEstimate | None = None

    @property
    def dim(self) -> int:
        return self.samples.shape[-1]

    def reward(self, x: Any) -> np.ndarray:
        """R̂ at x (n, dim), up to a constant; nan where `explored` is false."""
        points = self._points(x)
        if self.potential is None:
            return self._grid()(points)
        return np.where(self.potential.explored(points), self.potential.value(points), np.nan)

    def reward_error(self, x: Any) -> np.ndarray:
        """Standard error of R̂ at x (n, dim), of its difference from R̂'s mean over the data; given the basis."""
        points = self._points(x)
        if self.potential is None:
            raise ValueError(f"error bars need a method that fits a potential; {self.method} has none.")
        return np.where(self.potential.explored(points), self.potential.error(points), np.nan)

    def explored(self, x: Any) -> np.ndarray:
        """Whether there were data, or chains, at x (n, dim)."""
        points = self._points(x)
        return self._grid().explored(points) if self.potential is None else self.potential.explored(points)

    def plot(self) -> Any:
        """A matplotlib Figure: R̂ in two dimensions, the chains' traces otherwise."""
        if self.dim == 2:
            return plots.reward_map(self.estimate or RewardEstimate(self._histogram(), self.diagnostics["beta"]))
        return plots.trace(self.samples, 1 if self.chains is None else self.chains.sample_every)

    def _histogram(self) -> Histogram:
        flat = self.samples.reshape(-1, self.dim)
        edges = tuple(np.linspace(low, high, 41) for low, high in zip(flat.min(axis=0), flat.max(axis=0), strict=True))
        return Histogram.of(flat, edges)

    def _grid(self) -> RewardEstimate:
        if self.estimate is None:
            raise ValueError(
                f"R̂ in {self.dim} dimensions needs a method that fits a potential; {self.method} has samples only."
            )
        return self.estimate

    def _points(self, x: Any) -> np.ndarray:
        points = np.asarray(x, dtype=float)
        if points.ndim == 1 and self.dim == 1:
            points = points[:, None]
        if points.ndim != 2 or points.shape[1] != self.dim:
            raise ValueError(f"x has shape {points.shape}; give points of shape (n, {self.dim}).")
        return points


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
        π, the density the points come from: a distribution with ``log_prob`` or a log-density function. "potential"
        does without.
    beta
        β: chains sample exp(βR). Larger sharpens the picture around the maxima.
    method
        "potential" fits a reward whose gradient predicts the observed ones, and draws from it; "passive" and
        "reweighted" are the paper's, and need the density. "auto" means "potential".
    step_size, bandwidth
        μ and Δ of the paper's methods; by default chosen from the data.
    chains, seed
        How many chains of samples, and the seed of everything random.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(METHODS)}.")
    given = {"step_size": step_size, "bandwidth": bandwidth}
    check_positive(beta=beta, **{name: value for name, value in given.items() if value is not None})
    check_whole(chains=chains)
    seen = observe(points, gradients, agents=agents, times=times, learning_rate=learning_rate, descent=descent)
    if len(seen) < FEWEST:
        raise ValueError(f"points holds {len(seen)} usable observations; a reconstruction needs at least {FEWEST}.")
    checked, doubts = inspect(seen)
    if method in ("auto", "potential"):
        return _by_potential(checked, [*seen.notes, *doubts], float(beta), int(chains), seed)
    if density is None:
        raise ValueError(
            f"density is missing: {method} needs the density the points come from, such as "
            "numpyro.distributions.Normal(0, 1).expand([dim]).to_event(1)."
        )
    return _by_chains(seen, doubts, method, density, beta, step_size, bandwidth, chains, seed)


def _by_potential(seen: Observations, doubts: list[str], beta: float, chains: int, seed: int) -> Reconstruction:
    held = held_out(seen, seed)
    fit = fit_smooth if seen.dim <= 3 else fit_ridge
    began = time.perf_counter()
    potential = fit(seen.points, seen.gradients, held, seed)
    fitted = time.perf_counter()
    if isinstance(potential, SmoothPotential):
        samples = potential.draw(chains * DRAWS, beta, seed).reshape(chains, DRAWS, seen.dim)
    else:
        samples = potential.chains(chains, WARMUP, DRAWS, beta, seed)
    flat = samples.reshape(-1, seen.dim)
    some = seen.points[np.random.default_rng(seed).integers(0, len(seen), 5000)]
    low, high = np.quantile(potential.value(some), [0.05, 0.95])
    diagnostics = {
        "observations": len(seen),
        "refused": seen.refused,
        "beta": beta,
        "held_out_error": potential.held_out_error,
        "quadratic_error": potential.quadratic_error,
        "gradient_noise": float(np.sqrt(potential.held_out_error / seen.dim)),
        "reward_span": float(high - low),
        "unexplored_share": float(1 - potential.explored(flat).mean()),
        "rhat": rhat(samples),
        "fit_seconds": fitted - began,
        "draw_seconds": time.perf_counter() - fitted,
        **potential.settings,
    }
    return Reconstruction("potential", samples, diagnostics, [*doubts, *_doubts_about(diagnostics)], potential)


def _doubts_about(diagnostics: dict[str, Any]) -> list[str]:
    """Sentences about a fitted potential and its draws."""
    doubts = []
    span = diagnostics["beta"] * diagnostics["reward_span"]
    if not LEAST_SPAN <= span <= MOST_SPAN:
        wanted = 10 / max(diagnostics["reward_span"], 1e-300)
        doubts.append(
            f"βR spans {span:.3g} over nine tenths of the data, so that exp(βR) is "
            f"{'flat' if span < 1 else 'a spike'}: beta={wanted:.2g} would show its shape."
        )
    if diagnostics["unexplored_share"] > 0.05:
        doubts.append(
            f"{diagnostics['unexplored_share']:.0%} of exp(βR) lies where no learner was: its maxima may be out there. "
            "Watch learners that start farther out."
        )
    if diagnostics["rhat"] > LARGEST_RHAT:
        doubts.append(
            f"the chains that sample the fitted reward disagree (rhat {diagnostics['rhat']:.2f}): it has several "
            "wells. R̂ itself does not depend on them."
        )
    return doubts


def _by_chains(
    seen: Observations, doubts: list[str], method: str, density, beta, step_size, bandwidth, chains, seed
) -> Reconstruction:
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
    warnings = [*seen.notes, *doubts, *result.warnings]
    return Reconstruction(learner.name, result.samples, diagnostics, warnings, chains=result, estimate=estimate)


def _numbers(result: Chains) -> dict[str, float]:
    return {name: value for name, value in result.settings.items() if isinstance(value, int | float)}


def _bandwidth(seen: Observations) -> float:
    """Half the points' spread, shrinking as n^(−1/(N+4)) like the best kernel regression does."""
    spread = float(np.mean(seen.points.std(axis=0)))
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
