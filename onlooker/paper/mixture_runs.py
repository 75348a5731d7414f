"""Runs on a mixture's reward, compared with its exact law, for Examples 1 and 1b: lengths, starts, rows and figures.

d1, d2 are the total variation of the two marginals on 20 bins of [−3, 3] and two overflow bins; ``joint`` is that of
the joint law on 40 × 40.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onlooker.core.density import standard_normal
from onlooker.core.distances import marginal_variations, total_variation
from onlooker.core.histogram import Histogram
from onlooker.data.stream import Stream
from onlooker.engine.accumulators import Grid
from onlooker.engine.run import Chains, run
from onlooker.inverse import InverseLearner
from onlooker.paper.figures import beside_truth, marginals, surface
from onlooker.paper.rows import Range, Row, widen
from onlooker.reconstruction import plots
from onlooker.simulation.exact.law import GridLaw
from onlooker.simulation.exact.quadrature import mixture_law
from onlooker.simulation.mixture import Mixture

__all__ = ["DENSITY", "GRID", "LISTING", "TEXT", "Example", "Length", "figures"]

GRID = Grid.cube(3.0, 2, bins=40)
DENSITY = standard_normal(2)
# The settings of the paper's text and of its listing.
TEXT: dict[str, Any] = {"step_size": 5e-4, "bandwidth": 0.1}
LISTING: dict[str, Any] = {"step_size": 1e-5, "bandwidth": 0.2}
# Largest increase of a distance with the fewer chain-steps of a quick run.
QUICK_ERROR = 0.015


@dataclass(frozen=True)
class Length:
    """Length of a row: in full as in the paper, or quick, with more chains for fewer steps."""

    chains: int
    steps: int = 10_000_000
    quick_chains: int = 150
    quick_steps: int = 2_000_000


@dataclass
class Example:
    """The reward of one prior, its exact law, and runs that are compared with it."""

    reward: Mixture
    quick: bool
    seed: int

    @property
    def law(self) -> GridLaw:
        return mixture_law(self.reward)

    @property
    def exact(self) -> Histogram:
        return self.law.histogram(GRID)

    def watch(self, learner: InverseLearner, stream: Stream, length: Length, label: str, **options: Any) -> Chains:
        chains, steps = (length.quick_chains, length.quick_steps) if self.quick else (length.chains, length.steps)
        # A quick run is too short to forget its start, so it starts where the points are.
        start = inner_points(chains, self.seed) if self.quick else np.zeros(2)
        burn_in = steps // 4 if self.quick else 0
        options = {"seed": self.seed, "start": start, "grid": GRID, "burn_in": burn_in, **options}
        result = run(learner, stream, chains=chains, steps=steps, label=label, **options)
        if result.interrupted:
            raise KeyboardInterrupt
        return result

    def row(
        self, name: str, chains: Chains, accept: dict[str, Range], to: Histogram | None = None, **extra: Any
    ) -> Row:
        assert chains.histogram is not None
        target = self.exact if to is None else to
        first, second = marginal_variations(chains.histogram.coarsen(2), target.coarsen(2))
        metrics = {
            "d1": first,
            "d2": second,
            "joint": total_variation(chains.histogram, target),
            "rhat": chains.diagnostics["rhat"],
            "kernel_ess": chains.diagnostics["kernel_ess"],
            **extra,
        }
        settings = {
            **chains.settings,
            "prior_variances": list(self.reward.prior_variances),
            "chains": chains.chains,
            "steps": chains.steps,
            "quick": self.quick,
            "seconds": round(chains.seconds, 2),
        }
        return Row(name, metrics, widen(accept, QUICK_ERROR) if self.quick else accept, settings)


def inner_points(count: int, seed: int, radius: float = 2.2) -> np.ndarray:
    """Quasi-random draws from N(0, I) within a radius: far out, where π is small, `passive` would not move."""
    from scipy.stats import qmc

    first, second = qmc.Halton(2, seed=seed).random(count).T
    distance = np.sqrt(-2 * np.log1p(-first * -np.expm1(-(radius**2) / 2)))
    return distance[:, None] * np.stack([np.cos(2 * np.pi * second), np.sin(2 * np.pi * second)], axis=1)


def figures(folder: Path, example_name: str, name: str, title: str, chains: Chains, example: Example) -> None:
    """The run's histogram as a surface, its contours beside the exact law, its marginals and its trace."""
    histogram = chains.histogram
    assert histogram is not None
    drawn = {
        "histogram": surface(histogram, title),
        "contour": beside_truth(histogram, example.exact, title),
        "marginals": marginals({title: histogram}, example.exact),
        "trace": plots.trace(chains.samples, chains.sample_every),
    }
    for kind, figure in drawn.items():
        plots.save(figure, folder / f"{example_name}-{name}-{kind}.png")
