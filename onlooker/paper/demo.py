"""A demonstration of twenty seconds: learners climb a reward, chains watch them, and R̂ is compared with the truth."""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from onlooker.core.density import standard_normal
from onlooker.core.distances import marginal_variations, total_variation, wasserstein
from onlooker.engine.accumulators import Grid
from onlooker.engine.run import run
from onlooker.fit.grid_reward import GridReward
from onlooker.inverse import passive
from onlooker.paper import figures
from onlooker.reconstruction import plots
from onlooker.simulation.agents import independent
from onlooker.simulation.exact.law import maxima
from onlooker.simulation.exact.quadrature import mixture_law
from onlooker.simulation.mixture import Mixture

__all__ = ["demo"]

STEPS = 3_000_000
CHAINS = 256
# Observations drawn in the figure.
SHOWN = 500


def demo(folder: Path, say: Callable[[str], None] = print, seed: int = 0, steps: int = STEPS) -> Path:
    """Run it, print the chains' moments beside the true ones and the distances, and draw overview.png in ``folder``."""
    reward, density, grid = Mixture(), standard_normal(2), Grid.cube(3.0, 2, bins=40)
    say(f"{steps:,} learners restart from N(0, I) and take a noisy gradient step on a reward that stays hidden.")
    stream = independent(reward, density, shared=True)
    say(f"{CHAINS} chains of the passive inverse learner watch them.")
    learner = passive(density, step_size=5e-4, bandwidth=0.1)
    chains = run(
        learner, stream, steps=steps, chains=CHAINS, grid=grid, burn_in=steps // 4, start=np.zeros(2), seed=seed
    )
    assert chains.histogram is not None
    if not chains.histogram.counts.sum():
        raise KeyboardInterrupt
    law = mixture_law(reward)
    exact = law.histogram(grid)
    billions, rate = chains.steps * CHAINS / 1e9, chains.diagnostics["chain_steps_per_second"] / 1e6
    say(f"{billions:.1f} billion chain-steps in {chains.seconds:.1f} s ({rate:.0f} million a second).\n")
    peaks = ", ".join(f"({first:.2f}, {second:.2f})" for first, second in maxima(reward.value, law))
    say(f"the true reward has its maxima at {peaks}")
    say(f"                      {'Onlooker':>18}    {'truth':>18}")
    for name, ours, true in (
        ("mean", chains.mean, law.mean),
        ("variance", np.diag(chains.covariance), np.diag(law.covariance)),
    ):
        say(f"{name:<20}  {ours[0]:>8.3f}  {ours[1]:>8.3f}    {true[0]:>8.3f}  {true[1]:>8.3f}")
    histogram = chains.histogram
    first, second = marginal_variations(histogram.coarsen(2), exact.coarsen(2))
    joint = total_variation(histogram, exact)
    say(f"total variation       {first:>8.3f}  {second:>8.3f}    of the marginals, {joint:.3f} of the joint law")
    distances = [wasserstein(histogram.marginal(axis), exact.marginal(axis)) for axis in range(2)]
    say(f"Wasserstein-1         {distances[0]:>8.3f}  {distances[1]:>8.3f}")

    estimate = GridReward(histogram)
    centres = np.stack(np.meshgrid(*estimate.centres, indexing="ij"), axis=-1)
    _, seen = stream.draw((), (), jax.random.key(seed), SHOWN, None)
    figure = figures.overview(np.asarray(seen.point), np.asarray(seen.gradient), estimate, reward.value(centres), exact)
    return plots.save(figure, folder / "overview.png", dpi=110)
