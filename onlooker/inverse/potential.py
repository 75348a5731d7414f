"""Samples of exp(βR̂) for a fitted R̂: cell by cell in up to three dimensions, by NUTS above.

R̂ is known everywhere and is differentiable, so that no chain has to wait for data: independent draws where a grid
resolves R̂, else Hamiltonian chains with their own step and metric, run until they are enough or have had their rounds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.coordinates import Coordinates
from onlooker.field.cells import Cells
from onlooker.field.ridge import RidgePotential
from onlooker.field.smooth import SmoothPotential

__all__ = ["Drawn", "sample_potential"]

# Draws of a chain: independent ones, or of one round after a warm-up.
DRAWS = 500
ROUND, WARMUP = 250, 200
# Of independent draws, all together.
FEWEST_DRAWS = 2000
MOST_ROUNDS = 6
TREE_DEPTH = 7
# The self-check looks at this many samples, or on so many cells per axis.
MOST_CHECKED = 5000
COARSE = {1: 64, 2: 32, 3: 16}


class Drawn(NamedTuple):
    """Samples (chain, draw, dim) of exp(βR̂), and the self-check: how far they are from it, 0 up to chance.

    In few dimensions the total variation between their histogram and exp(βR̂) beyond that of exact draws; in many, the
    worst coordinate's |E f′(x) + E f(x) ∂log p|, which is zero under p = exp(βR̂) by Stein's identity, with
    f = x − E x or, between the ends of an interval, that times a sine that vanishes there. ``unresolved`` is the share
    of the draws from cells that are too coarse for R̂.
    """

    samples: np.ndarray
    mismatch: float
    unresolved: float = 0.0


def sample_potential(
    potential: SmoothPotential | RidgePotential,
    *,
    chains: int,
    beta: float,
    seed: int,
    enough: Callable[[np.ndarray], bool] = lambda samples: True,
    coordinates: Coordinates | None = None,
    measure: str = "coordinates",
) -> Drawn:
    """Samples of exp(βR̂); where chains have to be run, until they are ``enough``.

    With ``coordinates`` of policies, of exp(βR̂) da or of exp(βR̂) dφ as the measure says.
    """
    volume = coordinates if measure == "policy" else None
    if isinstance(potential, SmoothPotential):
        draws = max(DRAWS, -(-FEWEST_DRAWS // chains))
        law = potential.law(beta, None if volume is None else volume.log_volume)
        samples = law.draw(chains * draws, seed).reshape(chains, draws, potential.dim)
        return Drawn(samples, _excess_variation(law, samples.reshape(-1, potential.dim)), law.rough)
    log_density = _on_torus(potential, beta, coordinates, volume)
    starts = potential.typical[np.random.default_rng(seed).integers(0, len(potential.typical), chains)]
    # Takes half a second to import, and few dimensions do without.
    from numpyro.infer import MCMC, NUTS

    sampler = MCMC(
        NUTS(potential_fn=lambda point: -log_density(point), max_tree_depth=TREE_DEPTH),
        num_warmup=WARMUP,
        num_samples=ROUND,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )

    def places(scaled: Any) -> np.ndarray:
        found = potential.restore(np.asarray(scaled))
        return found if coordinates is None else coordinates.fold(found)[0]

    sampler.run(jax.random.key(seed), init_params=jnp.asarray(potential.standardise(starts), jnp.float32))
    samples = places(sampler.get_samples(group_by_chain=True))
    for number in range(1, MOST_ROUNDS):
        if enough(samples):
            break
        sampler.post_warmup_state = sampler.last_state
        sampler.run(jax.random.key(seed + number))
        samples = np.concatenate([samples, places(sampler.get_samples(group_by_chain=True))], axis=1)
    interval = None if coordinates is None else coordinates.interval
    return Drawn(samples, _stein(potential, log_density, samples.reshape(-1, potential.dim), interval))


def _on_torus(
    potential: RidgePotential, beta: float, coordinates: Coordinates | None, volume: Coordinates | None
) -> Callable[[Array], Array]:
    """βR̂ of one point in standard deviations, folded back to where coordinates live, with the volume if it counts."""
    inside = potential.log_density(beta)
    if coordinates is None:
        return inside
    centre, spread = (jnp.asarray(part, jnp.float32) for part in (potential.centre, potential.spread))

    def log_density(scaled: Array) -> Array:
        place = coordinates.fold(scaled * spread + centre)[0]
        height = inside((place - centre) / spread)
        return height if volume is None else height + volume.log_volume(place)

    return log_density


def _stein(
    potential: RidgePotential,
    log_density: Callable[[Array], Array],
    flat: np.ndarray,
    interval: tuple[float, float] | None,
) -> float:
    some = flat[np.random.default_rng(0).integers(0, len(flat), min(len(flat), MOST_CHECKED))]
    slopes = potential.slope(log_density, some)
    if interval is None:
        return float(np.abs(1 + np.mean((some - some.mean(axis=0)) * slopes, axis=0)).max())
    rate = np.pi / (interval[1] - interval[0])
    away, angle = some - some.mean(axis=0), rate * (some - interval[0])
    found = np.sin(angle) * (1 + away * slopes) + away * rate * np.cos(angle)
    return float(np.abs(found.mean(axis=0) / np.sin(angle).mean(axis=0)).max())


def _excess_variation(law: Cells, flat: np.ndarray) -> float:
    dim = flat.shape[1]
    low, high = law.low.min(axis=0), (law.low + law.width).max(axis=0)
    edges = [np.linspace(*ends, COARSE[dim] + 1) for ends in zip(low, high, strict=True)]
    # Sums of shares may be off by their rounding.
    mass = np.clip(np.histogramdd(law.low + law.width / 2, edges, weights=law.mass)[0], 0, 1)
    share = np.histogramdd(flat, edges)[0] / len(flat)
    # E|count − np| of a binomial is about √(2p(1 − p)/πn).
    by_chance = 0.5 * np.sqrt(2 * mass * (1 - mass) / (np.pi * len(flat))).sum()
    return float(max(0.5 * np.abs(share - mass).sum() - by_chance, 0))
