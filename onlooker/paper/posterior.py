"""Example 1b: the posterior of T fixed rows, reconstructed from learners that climb it one row at a time.

The range of each row is computed before it runs, from the stationary Fokker–Planck law of the averaged diffusion for
this dataset (finite μ and Δ, gradient noise, and for running agents the gradients and the occupancy of an independent
fleet), and widened by a stated Monte-Carlo error.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onlooker.core.distances import marginal_variations
from onlooker.core.histogram import Histogram
from onlooker.data.observations import Observations
from onlooker.data.stream import recorded
from onlooker.inverse import ball, classical, passive, reweighted
from onlooker.paper.corrected_mixtures import corrected_rows
from onlooker.paper.mixture_runs import DENSITY, GRID, LISTING, TEXT, Example, Length, figures
from onlooker.paper.rows import Range, Row, at_least, at_most, between
from onlooker.simulation.agents import independent, questions, simulate
from onlooker.simulation.exact.averaged import coefficients, seen_on_grid
from onlooker.simulation.exact.fokker_planck import generator, stationary
from onlooker.simulation.exact.law import cells
from onlooker.simulation.exact.quadrature import mixture_law
from onlooker.simulation.mixture import Mixture, Posterior, Sweep

__all__ = ["PRESETS", "reproduce"]

PRESETS = ("text", "corrected")
DATASET, OTHER_DATASET = 0, 1
AXIS = cells(-3.6, 3.6, 0.03)
# Monte-Carlo error of a distance at full length: chains with streams of their own, and fifty on one stream.
OWN_ERROR, SHARED_ERROR = 0.02, 0.03
# Agents that run at once, and the steps of each.
PARALLEL, HORIZON = 1000, 100


def reproduce(preset: str | None, quick: bool, seed: int, folder: Path) -> Iterator[Row]:
    """Run the rows of a preset (default: all, or with ``quick`` the paper's) and draw the figures."""
    example = Example(Posterior(dataset_seed=DATASET), quick, seed)
    if preset in (None, "text"):
        yield from _text(example, folder)
    if preset == "corrected" or (preset is None and not quick):
        other = mixture_law(Posterior(dataset_seed=OTHER_DATASET)).histogram(GRID)
        yield from corrected_rows(example, "posterior", folder, (10_000,), other)


def _text(example: Example, folder: Path) -> Iterator[Row]:
    reward, exact = example.reward, example.exact.coarsen(2)
    own = independent(reward, DENSITY)

    expected = _oracle("classical", reward, step_size=5e-4)
    chains = example.watch(
        classical(step_size=5e-4), questions(reward), Length(100, quick_chains=400, quick_steps=100_000), "classical"
    )
    yield example.row("classical", chains, _around(marginal_variations(expected, exact), OWN_ERROR))

    expected = _oracle("passive", reward, **TEXT)
    near = marginal_variations(expected, exact)
    other = mixture_law(Posterior(dataset_seed=OTHER_DATASET)).histogram(GRID)
    far = marginal_variations(expected, other.coarsen(2))
    chains = example.watch(passive(DENSITY, **TEXT), own, Length(100, quick_chains=250), "passive")
    yield example.row("passive", chains, _around(near, OWN_ERROR))
    yield example.row(
        "passive, against another dataset's posterior",
        chains,
        {metric: at_least(distance - 2 * OWN_ERROR) for metric, distance in zip(("d1", "d2"), far, strict=True)},
        to=other,
    )
    figures(folder, "posterior", "passive", "passive inverse learner", chains, example)

    expected = _oracle("reweighted", reward, **LISTING)
    length = Length(60, quick_chains=300, quick_steps=500_000)
    chains = example.watch(reweighted(DENSITY, **LISTING, confine=ball(3.5)), own, length, "reweighted")
    yield example.row("reweighted", chains, _around(marginal_variations(expected, exact), OWN_ERROR))

    for order, name in (
        ("rotated", "passive, agents sweeping from a random row"),
        ("aligned", "passive, agents sweeping in step"),
    ):
        yield _sweeping(example, exact, order, name)


def _sweeping(example: Example, exact: Histogram, order: str, name: str) -> Row:
    """Parallel agents that each sweep the rows. Those that sweep in step must fail."""
    fleet = Sweep(dataset_seed=DATASET, order=order)
    expected = _oracle("passive", fleet, _fleet(fleet, 20_000, example.seed + 2), **TEXT)
    seen = _fleet(fleet, 20_000 if example.quick else 100_000, example.seed + 1)
    length = Length(50, steps=len(seen), quick_chains=150, quick_steps=len(seen))
    chains = example.watch(passive(DENSITY, **TEXT), recorded(seen), length, name)
    assert chains.histogram is not None
    distances = marginal_variations(expected, exact)
    accept = _around(distances, SHARED_ERROR)
    if order == "aligned":
        accept = {metric: (low, None) for metric, (low, _) in accept.items()}
    else:
        accept = {**accept, "to_oracle": at_most(2 * SHARED_ERROR)}
    return example.row(
        name,
        chains,
        {**accept, "warned": between(1, 1)},
        to_oracle=max(marginal_variations(chains.histogram.coarsen(2), expected)),
        warned=float(any(message.code == "density-mismatch" for message in chains.warnings)),
    )


def _fleet(reward: Sweep, agents: int, seed: int) -> Observations:
    return simulate(
        reward,
        DENSITY,
        agents=agents + PARALLEL,
        horizon=HORIZON,
        learning_rate=1e-3,
        order="interleaved",
        parallel=PARALLEL,
        seed=seed,
    )


def _oracle(name: str, reward: Mixture, seen: Observations | None = None, **settings: Any) -> Histogram:
    """The stationary law that theory predicts for a learner on this reward, in the bins of the metrics."""
    axes = (AXIS, AXIS)
    moments, occupancy = (
        (reward.gradient_moments, None) if seen is None else seen_on_grid(seen.points, seen.gradients, axes)
    )
    drift, diffusion = coefficients(name, axes, moments, _normal, occupancy=occupancy, **settings)
    return stationary(axes, generator(axes, drift, diffusion)).histogram(GRID).coarsen(2)


def _normal(points: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * (points**2).sum(axis=-1)) / (2 * np.pi)


def _around(distances: list[float], error: float) -> dict[str, Range]:
    """d1 and d2 as predicted, give or take an error; below two errors there is no lower limit."""
    return {
        metric: (None if distance < 2 * error else distance - error, distance + error)
        for metric, distance in zip(("d1", "d2"), distances, strict=True)
    }
