"""Samples of exp(βR̂) for a fitted R̂: independent draws from cells where a grid resolves it, NUTS otherwise.

R̂ is defined everywhere and differentiable, so that no data are needed while sampling. A potential's method ``sample``
calls one of these functions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.policies import Coordinates
from onlooker.fit.cells import Cells

if TYPE_CHECKING:
    from onlooker.fit.ridge_potential import RidgePotential

__all__ = ["SETTINGS", "Drawn", "SampleSettings", "sample_cells", "sample_nuts"]


@dataclass(frozen=True)
class SampleSettings:
    """Constants of the draws.

    Attributes
    ----------
    draws
        Independent draws per chain.
    fewest_draws
        Smallest number of independent draws in all chains together: with few chains, each has more.
    warmup
        Discarded steps of NUTS, in which it adapts its step size and metric.
    round
        Draws per chain of NUTS between checks whether they suffice.
    most_rounds
        Largest number of rounds: chains that have not converged by then rarely do, and a warning says so.
    tree_depth
        Largest number of doublings of a NUTS trajectory: 127 gradients, as every chain waits for the longest.
    most_checked
        Largest number of samples in the self-check of chains: its chance error is then some hundredths.
    coarse
        Bins per axis of the self-check of independent draws, by dimension: at most 4096, as there may be only 2000
        draws.
    """

    draws: int = 500
    fewest_draws: int = 2000
    warmup: int = 200
    round: int = 250
    most_rounds: int = 6
    tree_depth: int = 7
    most_checked: int = 5000
    coarse: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({1: 64, 2: 32, 3: 16}))


SETTINGS = SampleSettings()


class Drawn(NamedTuple):
    """Samples of exp(βR̂), and how well they match it.

    Attributes
    ----------
    samples
        Samples (chain, draw, dim).
    mismatch
        The self-check, 0 up to chance. For draws from cells: total variation between their histogram and exp(βR̂),
        beyond that of exact draws. For chains: the largest |E f′(x) + E f(x) ∂log p| of any coordinate, which is zero
        under p = exp(βR̂) by Stein's identity, with f = x − E x or, on an interval, that times a sine that vanishes at
        its ends.
    unresolved
        Share of the draws that are from cells too coarse for R̂.
    """

    samples: np.ndarray
    mismatch: float
    unresolved: float = 0.0


def sample_cells(law: Cells, chains: int, seed: int) -> Drawn:
    """Independent draws from a law on cells, divided among chains."""
    dim = law.low.shape[1]
    draws = max(SETTINGS.draws, -(-SETTINGS.fewest_draws // chains))
    samples = law.draw(chains * draws, seed).reshape(chains, draws, dim)
    return Drawn(samples, _excess_variation(law, samples.reshape(-1, dim)), law.rough)


def sample_nuts(
    potential: "RidgePotential",
    chains: int,
    beta: float,
    seed: int,
    enough: Callable[[np.ndarray], bool],
    coordinates: Coordinates | None,
    measure: str,
) -> Drawn:
    """Chains of NUTS, run until their samples are ``enough``; the parameters are those of `Potential.sample`."""
    log_density = _on_torus(potential, beta, coordinates, coordinates if measure == "policy" else None)
    starts = potential.typical[np.random.default_rng(seed).integers(0, len(potential.typical), chains)]
    # Imported here because it takes half a second, and draws from cells do not need it.
    from numpyro.infer import MCMC, NUTS

    sampler = MCMC(
        NUTS(potential_fn=lambda point: -log_density(point), max_tree_depth=SETTINGS.tree_depth),
        num_warmup=SETTINGS.warmup,
        num_samples=SETTINGS.round,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )

    def restored(scaled: Any) -> np.ndarray:
        points = potential.restore(np.asarray(scaled))
        return points if coordinates is None else coordinates.fold(points)[0]

    def draws(key: Array, **options: Any) -> np.ndarray:
        # NumPyro leaves dtypes and ranks to promotion.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            sampler.run(key, **options)
        return restored(sampler.get_samples(group_by_chain=True))

    samples = draws(jax.random.key(seed), init_params=jnp.asarray(potential.standardise(starts), jnp.float32))
    for number in range(1, SETTINGS.most_rounds):
        if enough(samples):
            break
        sampler.post_warmup_state = sampler.last_state
        samples = np.concatenate([samples, draws(jax.random.key(seed + number))], axis=1)
    interval = None if coordinates is None else coordinates.interval
    return Drawn(samples, _stein(potential, log_density, samples.reshape(-1, potential.dim), interval))


def _on_torus(
    potential: "RidgePotential", beta: float, coordinates: Coordinates | None, volume: Coordinates | None
) -> Callable[[Array], Array]:
    """A function of one standardised point: βR̂ with coordinates folded into their range, plus log volume if given."""
    inside = potential.scaled_log_density(beta)
    if coordinates is None:
        return inside
    centre, spread = (jnp.asarray(part, jnp.float32) for part in (potential.centre, potential.spread))

    def log_density(scaled: Array) -> Array:
        point = coordinates.fold(scaled * spread + centre)[0]
        height = inside((point - centre) / spread)
        return height if volume is None else height + volume.log_volume(point)

    return log_density


def _stein(
    potential: "RidgePotential",
    log_density: Callable[[Array], Array],
    flat: np.ndarray,
    interval: tuple[float, float] | None,
) -> float:
    """Violation of Stein's identity, see `Drawn.mismatch`."""
    sample = flat[np.random.default_rng(0).integers(0, len(flat), min(len(flat), SETTINGS.most_checked))]
    slopes = potential.slope(log_density, sample)
    if interval is None:
        return float(np.abs(1 + np.mean((sample - sample.mean(axis=0)) * slopes, axis=0)).max())
    rate = np.pi / (interval[1] - interval[0])
    away, angle = sample - sample.mean(axis=0), rate * (sample - interval[0])
    identity = np.sin(angle) * (1 + away * slopes) + away * rate * np.cos(angle)
    return float(np.abs(identity.mean(axis=0) / np.sin(angle).mean(axis=0)).max())


def _excess_variation(law: Cells, flat: np.ndarray) -> float:
    """Total variation between samples and law, beyond that of exact draws."""
    dim = flat.shape[1]
    low, high = law.low.min(axis=0), (law.low + law.width).max(axis=0)
    edges = [np.linspace(*ends, SETTINGS.coarse[dim] + 1) for ends in zip(low, high, strict=True)]
    # Clipped because sums of shares may exceed 1 by rounding.
    mass = np.clip(np.histogramdd(law.low + law.width / 2, edges, weights=law.mass)[0], 0, 1)
    share = np.histogramdd(flat, edges)[0] / len(flat)
    # E|count − np| of a binomial is about √(2p(1 − p)/πn).
    by_chance = 0.5 * np.sqrt(2 * mass * (1 - mass) / (np.pi * len(flat))).sum()
    return float(max(0.5 * np.abs(share - mass).sum() - by_chance, 0))
