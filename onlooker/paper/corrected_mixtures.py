"""The paper's Examples 1 and 1b by `reconstruct`: agents of 100 steps, π unknown, and far fewer observations.

The rows of the preset `corrected`. Distances are those of `mixture_runs`; rms_of_reward is the standard deviation of
R̂ − R over exact draws, and unexplored is the share of draws where R̂ is not given.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from onlooker.core.distances import marginal_variations, total_variation
from onlooker.core.histogram import Histogram
from onlooker.core.messages import undelivered
from onlooker.data.observations import Observations
from onlooker.data.stream import recorded
from onlooker.engine.run import run
from onlooker.inverse import passive
from onlooker.paper import figures
from onlooker.paper.mixture_runs import DENSITY, GRID, TEXT, Example
from onlooker.paper.rows import Row, at_least, at_most
from onlooker.reconstruction import plots
from onlooker.reconstruction.reconstruct import reconstruct
from onlooker.reconstruction.result import Reconstruction
from onlooker.simulation.agents import simulate

__all__ = ["corrected_rows"]

# The largest d1 and d2, by the number of agents of 100 steps.
ACCEPT = {1000: 0.08, 10_000: 0.035, 100_000: 0.02}
HORIZON = 100
# Most agents for the figures.
DRAWN_WITH = 10_000


def corrected_rows(
    example: Example, name: str, folder: Path, sizes: tuple[int, ...], other: Histogram | None = None
) -> Iterator[Row]:
    """Both methods on growing numbers of observations; ``other`` is a law from which they must stay away."""
    for agents in sizes:
        seen = simulate(
            example.reward, DENSITY, agents=agents, horizon=HORIZON, learning_rate=1e-3, seed=example.seed + agents
        )
        histograms: dict[str, Histogram] = {}
        for method in ("replay", "potential"):
            began = time.perf_counter()
            with undelivered():
                result = reconstruct(
                    seen.points,
                    seen.gradients,
                    agents=seen.agents,
                    times=seen.times,
                    method=method,
                    chains=256,
                    seed=example.seed,
                )
                histograms[method] = Histogram.of(result.samples, example.exact.edges)
            yield _row(example, result, histograms[method], seen, agents, time.perf_counter() - began)
            if other is not None:
                yield _against(example, method, histograms[method], other, len(seen))
        if agents == max(size for size in sizes if size <= DRAWN_WITH):
            _figure(example, name, folder, seen, histograms)


def _row(
    example: Example, result: Reconstruction, histogram: Histogram, seen: Observations, agents: int, seconds: float
) -> Row:
    first, second = marginal_variations(histogram.coarsen(2), example.exact.coarsen(2))
    draws = _draws(example, 2000)
    error = result.reward(draws) - example.reward.value(draws)
    metrics = {
        "d1": first,
        "d2": second,
        "joint": total_variation(histogram, example.exact),
        "rms_of_reward": float(np.nanstd(error)),
        "unexplored": float(np.isnan(error).mean()),
        "rhat": result.diagnostics["rhat"],
    }
    kept = ("bandwidth", "variant", "step_size", "order", "length", "prior")
    settings = {name: value for name, value in result.diagnostics.items() if name in kept}
    settings |= {"observations": len(seen), "seconds": round(seconds, 2), "quick": example.quick}
    limit = at_most(ACCEPT[agents])
    return Row(
        f"{result.method}, 100-step agents, {len(seen):.0e} observations", metrics, {"d1": limit, "d2": limit}, settings
    )


def _against(example: Example, method: str, histogram: Histogram, other: Histogram, observations: int) -> Row:
    """The row that must fail: the distance to another law is nearly that between the two laws."""
    apart = marginal_variations(example.exact.coarsen(2), other.coarsen(2))
    first, second = marginal_variations(histogram.coarsen(2), other.coarsen(2))
    accept = {"d1": at_least(apart[0] - 0.08), "d2": at_least(apart[1] - 0.08)}
    name = f"{method}, against another dataset's posterior, {observations:.0e} observations"
    return Row(name, {"d1": first, "d2": second}, accept, {"quick": example.quick})


def _figure(example: Example, name: str, folder: Path, seen: Observations, histograms: dict[str, Histogram]) -> None:
    """The paper's learner on the same observations, both methods, and the exact law."""
    with undelivered():
        paper = run(passive(DENSITY, **TEXT), recorded(seen), chains=100, seed=example.seed, grid=GRID)
    assert paper.histogram is not None
    panels = {
        "passive (the paper's)": paper.histogram,
        "replay": histograms["replay"],
        "potential": histograms["potential"],
        "exact exp(R)": example.exact,
    }
    plots.save(figures.side_by_side(panels), folder / f"{name}-corrected.png")
    shown = {label: histogram.coarsen(2) for label, histogram in panels.items() if label != "exact exp(R)"}
    plots.save(figures.marginals(shown, example.exact.coarsen(2)), folder / f"{name}-corrected-marginals.png")


def _draws(example: Example, count: int) -> np.ndarray:
    """Draws of the exact law, at the centres of its cells."""
    law = example.law
    places = np.stack(np.meshgrid(*law.axes, indexing="ij"), axis=-1).reshape(-1, 2)
    return places[np.random.default_rng(example.seed).choice(len(places), count, p=law.mass.reshape(-1))]
