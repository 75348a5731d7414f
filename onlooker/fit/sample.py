"""Samples of exp(βR̂) for a fitted R̂: independent draws from cells where a grid resolves it, and how well samples fit.

Where no grid resolves it, chains do (`onlooker.fit.hmc`). R̂ is defined everywhere and differentiable, so that no data
are needed while sampling.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from onlooker.fit.cells import Cells

__all__ = ["SETTINGS", "Drawn", "SampleSettings", "sample_cells", "stein"]


@dataclass(frozen=True)
class SampleSettings:
    """Constants of the draws.

    Attributes
    ----------
    draws
        Independent draws per chain.
    fewest_draws
        Smallest number of independent draws in all chains together: with few chains, each has more.
    most_checked
        Largest number of samples in the self-check of chains: its chance error is then some hundredths.
    coarse
        Bins per axis of the self-check of independent draws, by dimension: at most 4096, as there may be only 2000
        draws.
    """

    draws: int = 500
    fewest_draws: int = 2000
    most_checked: int = 10_000
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
        beyond that of exact draws. For chains: the largest |E f′ + E f ∂log p| of any white coordinate beyond chance,
        which is zero under p = exp(βR̂) by Stein's identity, with f = x − E x or, on an interval, that times a sine
        that vanishes at its ends.
    unresolved
        Share of the draws that are from cells too coarse for R̂.
    """

    samples: np.ndarray
    mismatch: float
    unresolved: float = 0.0


def sample_cells(law: Cells, chains: int, seed: int, draws: int | None = None) -> Drawn:
    """Independent draws from a law on cells, divided among chains."""
    dim = law.low.shape[1]
    draws = draws or max(SETTINGS.draws, -(-SETTINGS.fewest_draws // chains))
    samples = law.draw(chains * draws, seed).reshape(chains, draws, dim)
    return Drawn(samples, _excess_variation(law, samples.reshape(-1, dim)), law.rough)


def stein(slope: Callable[[np.ndarray], np.ndarray], flat: np.ndarray, interval: tuple[float, float] | None) -> float:
    """Violation of Stein's identity by samples (n, dim) of a law whose log has this ``slope``; see `Drawn.mismatch`."""
    every = max(1, len(flat) // SETTINGS.most_checked)
    sample = flat[::every]
    slopes = slope(sample)
    away = sample - sample.mean(axis=0)
    if interval is None:
        # Along white coordinates the chance error does not grow with correlations.
        root = np.linalg.cholesky(np.atleast_2d(np.cov(sample.T)))
        identity = 1 + np.linalg.solve(root, away.T).T * (slopes @ root)
    else:
        rate = np.pi / (interval[1] - interval[0])
        angle = rate * (sample - interval[0])
        identity = np.sin(angle) * (1 + away * slopes) + away * rate * np.cos(angle)
        identity /= np.sin(angle).mean(axis=0)
    # The largest of d normal variables is about √(2 log 2d) of their standard deviations.
    by_chance = identity.std(axis=0) * np.sqrt(2 * np.log(2 * identity.shape[1]) / len(sample))
    return float(np.maximum(np.abs(identity.mean(axis=0)) - by_chance, 0).max())


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
