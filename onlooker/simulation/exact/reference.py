"""The reference of Example 2: a long Hamiltonian Monte Carlo run on exp(R), stored as quantiles with their error.

``python -m tools.make_reference --chains 1024 --warmup 200 --draws 400`` made the ``a9a.npz`` that is shipped, in a
minute on an accelerator: 256 quantiles of each of the 124 coordinates, and of ψᵀα for 200 rows ψ of the data, which
test the joint law. The defaults, 64 chains of 1000 draws, are for two cores and a quarter of an hour.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from onlooker.core.distances import quantile_distance, quantiles
from onlooker.simulation.logistic import Logistic
from onlooker.storage.archive import opened
from onlooker.storage.trees import unpack

__all__ = ["FILE", "Reference", "a9a_reference", "hamiltonian", "summarise"]

FILE = Path(__file__).with_name("a9a.npz")
# The number of rows whose logits are stored, and of quantiles of each marginal.
LOGIT_ROWS = 200
KEPT_QUANTILES = 256


@dataclass(frozen=True)
class Reference:
    """A law known by its quantiles.

    Attributes
    ----------
    coordinates
        (dim, 256) quantiles of each coordinate, at probabilities (i + ½)/256.
    rows
        The rows of the data whose logits are stored.
    logits
        (rows, 256) quantiles of ψᵀα for each.
    error
        (dim,) W1 error of each coordinate's quantiles, from the two halves of the chains.
    logit_error
        The same for the logits.
    draws
        Number of draws.
    ess
        Number of independent draws they are worth, median over coordinates.
    rhat
        The largest rhat.
    settings
        The settings of the run.
    """

    coordinates: np.ndarray
    rows: np.ndarray
    logits: np.ndarray
    error: np.ndarray
    logit_error: np.ndarray
    draws: float
    ess: float
    rhat: float
    settings: str = ""

    def distances(self, samples: np.ndarray) -> np.ndarray:
        """W1 (`eq:L1`) between each marginal of samples (n, dim) and that of this law."""
        return quantile_distance(samples, self.coordinates)

    def logit_distances(self, samples: np.ndarray, reward: Logistic) -> np.ndarray:
        """W1 of ψᵀα for each of the rows."""
        features = np.asarray(reward.data.features)[self.rows]
        return quantile_distance(np.asarray(samples, np.float32) @ features.T, self.logits)

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in vars(self).items()}
        for name in ("coordinates", "logits"):
            arrays[name] = arrays[name].astype(np.float16)
        np.savez_compressed(path, **arrays)


def a9a_reference() -> Reference:
    """The shipped reference."""
    with opened(FILE) as arrays:
        return unpack(Reference, {name: arrays[name] for name in arrays})


def hamiltonian(
    reward: Logistic, *, chains: int, warmup: int, draws: int, trajectory: float = 2.0, seed: int = 0
) -> np.ndarray:
    """Draws (chain, draw, dim) of exp(R) by HMC, all chains in one matrix product.

    Equal rows are merged: their likelihoods differ only by the numbers of labels of each kind.
    """
    from numpyro.infer import HMC, MCMC

    features, label = np.asarray(reward.data.features), np.asarray(reward.data.label)
    merged, number = np.unique(features, axis=0, return_inverse=True)
    share = jnp.asarray(np.bincount(number.reshape(-1)) / len(label), jnp.float32)
    towards = jnp.asarray(label @ features / len(label), jnp.float32)
    different_rows = jnp.asarray(merged)

    def potential(point: Array) -> Array:
        likelihood = towards @ point - share @ jax.nn.softplus(different_rows @ point)
        return jnp.sum(jnp.abs(point)) - reward.weight * likelihood

    kernel = HMC(potential_fn=potential, trajectory_length=trajectory, adapt_mass_matrix=False)
    sampler = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    run_key, start_key = jax.random.split(jax.random.key(seed))
    # NumPyro leaves dtypes and ranks to promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        sampler.run(run_key, init_params=jax.random.laplace(start_key, (chains, reward.dim)))
    return np.asarray(sampler.get_samples(group_by_chain=True))


def summarise(samples: np.ndarray, reward: Logistic, seed: int = 0) -> Reference:
    """Quantiles of draws (chain, draw, dim) and their error.

    The halves of the chains are two runs of half the size. Each has √2 times the error of the whole, and their distance
    is √2 times that: so the error of the whole is half of their distance.
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    dim = samples.shape[-1]
    rows = np.sort(np.random.default_rng(seed).choice(reward.rows, LOGIT_ROWS, replace=False))
    features = np.asarray(reward.data.features)[rows]
    half = len(samples) // 2

    def kept(pooled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        flat = pooled.reshape(-1, pooled.shape[-1])
        other = quantiles(pooled[half:].reshape(-1, pooled.shape[-1]), KEPT_QUANTILES)
        error = quantile_distance(pooled[:half].reshape(-1, pooled.shape[-1]), other) / 2
        return quantiles(flat, KEPT_QUANTILES), error

    coordinates, error = kept(samples)
    logits, logit_error = kept(samples @ features.T)
    ess = float(np.median([effective_sample_size(samples[..., axis]) for axis in range(dim)]))
    rhat = max(float(split_gelman_rubin(samples[..., axis])) for axis in range(dim))
    count = samples.shape[0] * samples.shape[1]
    return Reference(coordinates, rows, logits, error, logit_error, count, ess, rhat)
