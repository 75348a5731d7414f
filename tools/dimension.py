"""Kernels in high dimensions: the measurements of docs/which-learner.md.

    python -m tools.dimension docs/figures

prints and draws, for points θ ~ N(0, I): the effective number of observations in a pool of L, the number of chains at
which observations come near one of them, the cost of resampling a pool, and that of pools from few agents on Example 1.
"""

import argparse
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.figure import Figure
from scipy.optimize import brentq
from scipy.stats import chi2, ncx2

from onlooker.core.density import standard_normal
from onlooker.core.distances import marginal_variations
from onlooker.core.kernels import gaussian
from onlooker.data.stream import Stream, pooled, recorded
from onlooker.engine.run import run
from onlooker.fit.kernel_regression import neighbours
from onlooker.inverse import ball, multikernel, reweighted
from onlooker.paper.mixture_runs import DENSITY, GRID, Example
from onlooker.reconstruction import plots
from onlooker.simulation.agents import independent, independent_pools, simulate
from onlooker.simulation.mixture import Mixture
from onlooker.simulation.reward import NoisyReward

__all__ = ["main"]

DIMENSIONS = (1, 2, 3, 5, 10, 20, 50, 124)
POOLS = (100, 1000, 10_000, 100_000)
BANDWIDTHS = {".1": 0.1, "√.1": 0.1**0.5, "1": 1.0}


def pool_ess(dim: int, size: int, bandwidth: float, looks: int = 400) -> float:
    """Mean kernel ESS of pools from N(0, I) at a point of the same law; only distances are drawn."""
    generator = np.random.default_rng(0)
    looks = max(100, min(looks, 10_000_000 // size))
    place = np.sqrt(generator.chisquare(dim, (looks, 1)))
    squared = (generator.standard_normal((looks, size)) - place) ** 2
    if dim > 1:
        squared += generator.chisquare(dim - 1, (looks, size))
    exponent = -squared / (2 * bandwidth**2)
    weight = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return float((weight.sum(axis=1) ** 2 / (weight**2).sum(axis=1)).mean())


def show_ess(folder: Path) -> None:
    print("kernel ESS of a pool from N(0, I), seen from a point of the same law")
    figure = Figure(figsize=(11, 4), layout="constrained")
    panels = figure.subplots(1, len(BANDWIDTHS), sharey=True)
    for axes, (name, bandwidth) in zip(panels, BANDWIDTHS.items(), strict=True):
        print(f"bandwidth {name:>3}   N = " + "".join(f"{dim:>9}" for dim in DIMENSIONS))
        for colour, size in zip(plots.COLOURS, POOLS, strict=False):
            found = [pool_ess(dim, size, bandwidth) for dim in DIMENSIONS]
            print(f"   L = {size:>8}      " + "".join(f"{value:>9.2f}" for value in found))
            axes.plot(DIMENSIONS, found, "o-", color=colour, markersize=4, label=f"L = {size:,}")
        axes.axhline(1.5, color="0.5", linewidth=0.8, linestyle="--")
        axes.set(xscale="log", yscale="log", xlabel="dimension N", title=f"bandwidth σ = {name}")
    panels[0].set_ylabel("observations of the pool that count")
    panels[-1].legend(fontsize=9, frameon=False)
    plots.save(figure, folder / "kernel-ess.png")


def chains_needed(dim: int, bandwidth: float) -> float:
    """Number of chains from N(0, I) at which every other observation from N(0, I) is within a bandwidth of one of them.

    For one chain, given θ, ‖θ − α‖² ~ χ²(N) with non-centrality ‖θ‖²; M of them all miss with E(1 − p(θ))^M.
    """
    norms = chi2.ppf((np.arange(2000) + 0.5) / 2000, dim)
    log_miss = np.log1p(-ncx2.cdf(bandwidth**2, dim, norms))
    return float(np.exp(brentq(lambda log_chains: np.exp(np.exp(log_chains) * log_miss).mean() - 0.5, 0, 40)))


def chain_error(dim: int, chains: int, seeds: int = 6, steps: int = 20_000) -> float:
    """Root mean square error of the second moments of chains on one stream; those of exp(−‖α‖²/2) are all 1."""
    reward = NoisyReward(dim, lambda point: -jnp.sum(point * point) / 2, 0.5)
    # Far enough out that the ball's own second moments are not 1.
    confine = ball(dim**0.5 + 3)
    learner = reweighted(standard_normal(dim), step_size=1e-3, bandwidth=0.5, confine=confine)
    stream = independent(reward, standard_normal(dim), shared=True)
    errors = []
    for seed in range(seeds):
        start = np.random.default_rng(seed).standard_normal((chains, dim)) / 2
        found = run(learner, stream, steps=steps, chains=chains, seed=seed, start=start, burn_in=steps // 4)
        errors.append(np.diag(found.covariance) + found.mean**2 - 1)
    return float(np.sqrt(np.mean(np.square(errors))))


def show_chains(folder: Path) -> None:
    dims, counts = (1, 2, 3, 4, 5, 6, 8, 10), (1, 4, 16, 64, 256, 1024)
    print("\nchains needed for every other observation to pass within a bandwidth of .5, beside 2^N")
    needed = [chains_needed(dim, 0.5) for dim in dims]
    print("N            " + "".join(f"{dim:>11}" for dim in dims))
    print("chains needed" + "".join(f"{value:>11.3g}" for value in needed))
    print("2^N          " + "".join(f"{2**dim:>11}" for dim in dims))
    print("\nerror of the second moments, reweighted, 20 000 observations, one stream for all chains")
    print("chains   " + "".join(f"{count:>9}" for count in counts))
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(dims, needed, "o-", color=plots.COLOURS[0], label="needed")
    left.plot(dims, [2.0**dim for dim in dims], "--", color="0.4", label="$2^N$")
    left.set(yscale="log", xlabel="dimension N", ylabel="chains", title="an observation within a bandwidth of a chain")
    left.legend(fontsize=9, frameon=False)
    for colour, dim in zip(plots.COLOURS, (1, 2, 3, 5, 8), strict=False):
        errors = [chain_error(dim, count) for count in counts]
        print(f"   N = {dim:<3}" + "".join(f"{error:>9.3f}" for error in errors))
        right.plot(counts, errors, "o-", color=colour, markersize=4, label=f"N = {dim}")
    right.set(xscale="log", yscale="log", xlabel="chains on one stream", ylabel="error of second moments")
    right.set_title("what more chains bring")
    right.legend(fontsize=9, frameon=False)
    plots.save(figure, folder / "chains-and-dimension.png")


def show_resampling(looks: int = 20_000) -> None:
    """Variance over pools of the pool's gradient at one place, weighted and resampled."""
    print("\nvariance of a pool's gradient, L = 100 from N(0, I), R = −‖θ‖²/2, gradient noise 1: resampled / weighted")
    for dim, bandwidth in ((2, 0.1), (2, 0.3), (2, 1.0), (10, 0.1**0.5), (124, 0.1**0.5)):
        reward = NoisyReward(dim, lambda point: -jnp.sum(point * point) / 2, 1.0)
        pools = independent_pools(reward, standard_normal(dim), 100, same_sample=False, shared=True)
        place, count = jnp.zeros(dim).at[0].set(0.5), min(looks, 2_000_000 // dim // 10)

        @jax.jit
        def both(
            key: Array,
            pools: Stream = pools,
            place: Array = place,
            bandwidth: float = bandwidth,
            count: int = count,
        ) -> tuple[Array, Array]:
            draw_key, choice_key = jax.random.split(key)
            _, seen = pools.draw(pools.data, (), draw_key, count, None)
            near = jax.vmap(lambda point: neighbours(place, point, gaussian, bandwidth))(seen.point)
            weighted = jax.vmap(lambda weight, gradient: weight @ gradient)(near.weight, seen.gradient)
            chosen = jax.random.categorical(choice_key, jnp.log(near.weight), axis=-1)
            return weighted, seen.gradient[jnp.arange(count), chosen]

        weighted, resampled = (np.asarray(part).var(axis=0).mean() for part in both(jax.random.key(0)))
        print(f"   N = {dim:<4} σ = {bandwidth:<6.3g} {resampled:8.3f} / {weighted:.3f} = {resampled / weighted:.2f}")


def show_agents(agents: int) -> None:
    """Example 1 with pools of 100, by the number of agents in a pool."""
    print(f"\nExample 1, multikernel, pools of 100 from agents of 100 steps, {agents:,} agents, 50 chains")
    example = Example(Mixture((10.0, 2.0)), quick=False, seed=0)
    exact = example.exact.coarsen(2)
    learner = multikernel(step_size=5e-4, bandwidth=0.1)
    for parallel in (1, 2, 5, 10, 20, 50, 100):
        seen = simulate(
            example.reward,
            DENSITY,
            agents=agents,
            horizon=100,
            learning_rate=1e-3,
            order="interleaved",
            parallel=parallel,
            seed=9,
        )
        pools = pooled(recorded(seen), 100)
        assert pools.length is not None
        found = run(learner, pools, chains=50, grid=GRID, burn_in=pools.length // 10, start=np.zeros(2))
        assert found.histogram is not None
        first, second = marginal_variations(found.histogram.coarsen(2), exact)
        warned = "warned" if any(message.code == "pools-alike" for message in found.warnings) else ""
        print(f"   {parallel:>4} agents a pool: d1 {first:.3f}, d2 {second:.3f} {warned}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agents", type=int, default=100_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    show_ess(options.folder)
    show_chains(options.folder)
    show_resampling()
    show_agents(options.agents)


if __name__ == "__main__":
    main()
