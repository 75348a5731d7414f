"""Samples of exp(βR̂) for a fitted R̂: cell by cell in up to three dimensions, by NUTS above.

R̂ is known everywhere and is differentiable, so that no chain has to wait for data: independent draws where a grid
resolves R̂, else Hamiltonian chains with their own step and metric, run until they are enough or have had their rounds.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import MCMC, NUTS

from onlooker.field.ridge import RidgePotential
from onlooker.field.smooth import SmoothPotential

__all__ = ["mismatch", "sample_potential"]

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


def sample_potential(
    potential: SmoothPotential | RidgePotential,
    *,
    chains: int,
    beta: float,
    seed: int,
    enough: Callable[[np.ndarray], bool] = lambda samples: True,
) -> np.ndarray:
    """Samples of exp(βR̂), (chain, draw, dim); where chains have to be run, until they are ``enough``."""
    if isinstance(potential, SmoothPotential):
        draws = max(DRAWS, -(-FEWEST_DRAWS // chains))
        return potential.draw(chains * draws, beta, seed).reshape(chains, draws, potential.dim)
    log_density = potential.log_density(beta)
    starts = potential.typical[np.random.default_rng(seed).integers(0, len(potential.typical), chains)]
    sampler = MCMC(
        NUTS(potential_fn=lambda point: -log_density(point), max_tree_depth=TREE_DEPTH),
        num_warmup=WARMUP,
        num_samples=ROUND,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    sampler.run(jax.random.key(seed), init_params=jnp.asarray(potential.standardise(starts), jnp.float32))
    samples = np.asarray(sampler.get_samples(group_by_chain=True))
    for number in range(1, MOST_ROUNDS):
        if enough(samples):
            break
        sampler.post_warmup_state = sampler.last_state
        sampler.run(jax.random.key(seed + number))
        samples = np.concatenate([samples, np.asarray(sampler.get_samples(group_by_chain=True))], axis=1)
    return potential.restore(samples)


def mismatch(potential: SmoothPotential | RidgePotential, samples: np.ndarray, beta: float) -> float:
    """The self-check: how far samples are from the R̂ they should follow, 0 up to chance.

    In few dimensions the total variation between their histogram and exp(βR̂) beyond that of exact draws; in many, the
    worst coordinate's 1 + E[(x − Ex)∂log p], which is zero under p = exp(βR̂) by Stein's identity.
    """
    flat = samples.reshape(-1, potential.dim)
    if isinstance(potential, SmoothPotential):
        return _excess_variation(potential, flat, beta)
    some = flat[np.random.default_rng(0).integers(0, len(flat), min(len(flat), MOST_CHECKED))]
    return float(np.abs(1 + np.mean((some - some.mean(axis=0)) * potential.score(some, beta), axis=0)).max())


def _excess_variation(potential: SmoothPotential, flat: np.ndarray, beta: float) -> float:
    edges, mass = potential.masses(beta, COARSE[potential.dim])
    share = np.histogramdd(flat, edges)[0] / len(flat)
    # E|count − np| of a binomial is about √(2p(1 − p)/πn).
    by_chance = 0.5 * np.sqrt(2 * mass * (1 - mass) / (np.pi * len(flat))).sum()
    return float(max(0.5 * np.abs(share - mass).sum() - by_chance, 0))
