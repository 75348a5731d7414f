"""Example 1: the Bayesian mixture's reward, by every passive inverse learner (fig:classicalLang, fig:mh, fig:mh2).

Distances d1, d2 are the total variation of the two marginals, on 20 bins of [−3, 3] and two overflow bins, to the
exact law exp(R) unless a row says otherwise. Some rows must fail: they show what the paper gets wrong.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from onlooker.core.distances import marginal_variations, total_variation
from onlooker.core.histogram import Histogram
from onlooker.data.stream import pooled, recorded
from onlooker.engine.accumulators import Marginals
from onlooker.engine.run import Chains
from onlooker.inverse import active, ball, classical, corrected, multikernel, nonreversible, passive, reweighted
from onlooker.paper.corrected_mixtures import corrected_rows
from onlooker.paper.errata import as_printed
from onlooker.paper.mixture_runs import DENSITY, LISTING, TEXT, Example, Length, figures
from onlooker.paper.naive import naive
from onlooker.paper.rows import Row, at_least, at_most, between
from onlooker.simulation.agents import independent, questions, simulate
from onlooker.simulation.mixture import Mixture

__all__ = ["PRESETS", "reproduce"]

PRESETS = ("text", "listing", "corrected")
# Number of places where `corrected` measures the covariance of gradients.
PLACES = 16
# The rotation S of `nonreversible`.
SKEW = [[0.0, 1.0], [-1.0, 0.0]]


def reproduce(preset: str | None, quick: bool, seed: int, folder: Path) -> Iterator[Row]:
    """Run the rows of a preset (default: all, or with ``quick`` text and listing) and draw the figures."""
    if preset in (None, "text"):
        yield from _text(Example(Mixture((10.0, 2.0)), quick, seed), folder)
    if preset in (None, "listing"):
        yield from _listing(Example(Mixture((10.0, 1.0)), quick, seed), folder)
    if preset == "corrected" or (preset is None and not quick):
        sizes = (1000, 10_000) if quick else (1000, 10_000, 100_000)
        example = Example(Mixture((10.0, 2.0)), quick, seed)
        yield from corrected_rows(example, "bayes", folder, sizes)
        yield from _noise_corrected(example)


def _text(example: Example, folder: Path) -> Iterator[Row]:
    reward = example.reward
    own = independent(reward, DENSITY)

    benchmark = example.watch(
        classical(step_size=5e-4),
        questions(reward),
        Length(100, quick_chains=400, quick_steps=100_000),
        "classical",
    )
    yield example.row("classical", benchmark, {"d1": between(0.012, 0.025), "d2": between(0.006, 0.017)})
    figures(folder, "bayes", "classical", "classical Langevin dynamics", benchmark, example)

    main = example.watch(passive(DENSITY, **TEXT), own, Length(100, quick_chains=300, quick_steps=1_000_000), "passive")
    assert main.histogram is not None
    to_exact = marginal_variations(main.histogram.coarsen(2), example.exact.coarsen(2))
    yield example.row(
        "passive",
        main,
        {"d1": at_most(0.045), "d2": at_most(0.045)},
        to=benchmark.histogram,
        d1_to_exact=to_exact[0],
        d2_to_exact=to_exact[1],
    )
    figures(folder, "bayes", "passive", "passive inverse learner", main, example)

    yield _one_stream(example)
    yield from _importance_weighted(example)
    yield from _second_forms(example)
    yield _running_agents(example)
    yield from _pools(example, folder)

    for name, bandwidth in (("naive", 0.1), ("naive, no kernel", None)):
        learner = naive(step_size=1e-4, bandwidth=bandwidth)
        lost = example.watch(learner, own, Length(20, quick_chains=20, quick_steps=300_000), name)
        yield example.row(name, lost, {"d1": at_least(0.5), "d2": at_least(0.5)})


def _importance_weighted(example: Example) -> Iterator[Row]:
    """`reweighted` and `nonreversible`, and the ratio of the distances of their single runs."""
    own = independent(example.reward, DENSITY)
    weighted = reweighted(DENSITY, **LISTING, confine=ball(3.5))
    per_run = Marginals(-3.0, 3.0, 20, per_chain=True)
    length = Length(100, quick_chains=160, quick_steps=500_000)
    plain = example.watch(weighted, own, length, "reweighted", marginals=per_run)
    yield example.row("reweighted, listing's step and bandwidth", plain, {"d1": at_most(0.06), "d2": at_most(0.08)})
    turned = nonreversible(DENSITY, rotation=SKEW, **LISTING, confine=ball(3.5))
    length = Length(30, quick_chains=200, quick_steps=500_000)
    rotated = example.watch(turned, own, length, "nonreversible", marginals=per_run)
    ratio = _per_run_distance(rotated, example) / _per_run_distance(plain, example)
    yield example.row(
        "nonreversible",
        rotated,
        {"d1": at_most(0.06), "d2": at_most(0.08), "per_run_ratio": at_most(0.9)},
        per_run_ratio=ratio,
    )


def _second_forms(example: Example) -> Iterator[Row]:
    """The second form of `passive`, and the same as printed, which must fail."""
    one_stream = independent(example.reward, DENSITY, shared=True)
    for learner, name, length, accept in (
        (
            passive(DENSITY, **TEXT, form="second"),
            "passive, second form",
            Length(50, quick_chains=200, quick_steps=1_000_000),
            {"d1": at_most(0.06), "d2": at_most(0.07)},
        ),
        (
            as_printed(DENSITY, **TEXT),
            "passive, second form as printed",
            Length(50, quick_chains=50, quick_steps=1_000_000),
            {"d1": at_least(0.5), "d2": at_least(0.5)},
        ),
    ):
        second = example.watch(learner, one_stream, length, name)
        yield example.row(name, second, accept)


def _one_stream(example: Example) -> Row:
    """Six seeds of 50 chains (three of 100 if quick); the chains of a seed share one stream."""
    count = 3 if example.quick else 6
    learner, stream = passive(DENSITY, **TEXT), independent(example.reward, DENSITY, shared=True)
    seeds = [
        example.watch(
            learner,
            stream,
            Length(50, quick_chains=100),
            f"passive, one stream, seed {number + 1} of {count}",
            seed=example.seed + 1000 * (number + 1),
        )
        for number in range(count)
    ]
    return _pooled_seeds(example, "passive, 50 chains on one stream", seeds, worst_seed=0.07)


def _pooled_seeds(example: Example, name: str, seeds: list[Chains], worst_seed: float) -> Row:
    """One row for several seeds: the distances of all together, and those of the worst seed."""
    exact = example.exact.coarsen(2)
    histograms = [chains.histogram for chains in seeds if chains.histogram is not None]
    worst = np.max([marginal_variations(histogram.coarsen(2), exact) for histogram in histograms], axis=0)
    together = Histogram(example.exact.edges, np.sum([histogram.counts for histogram in histograms], axis=0))
    accept = {f"{metric}_worst_seed": at_most(worst_seed) for metric in ("d1", "d2")}
    if len(seeds) > 1:
        accept |= {"d1": at_most(0.04), "d2": at_most(0.04)}
    return example.row(
        name,
        replace(seeds[0], histogram=together),
        accept,
        d1_worst_seed=float(worst[0]),
        d2_worst_seed=float(worst[1]),
    )


def _running_agents(example: Example) -> Row:
    """Agents that run 100 steps leave π, which is still assumed: the row must fail, and must warn."""
    agents = 10_000 if example.quick else 100_000
    observations = simulate(
        example.reward, DENSITY, agents=agents, horizon=100, learning_rate=1e-3, seed=example.seed + 1
    )
    length = Length(50, quick_steps=1_000_000)
    chains = example.watch(passive(DENSITY, **TEXT), recorded(observations), length, "passive, running agents")
    warned = any(message.code == "density-mismatch" for message in chains.warnings)
    return example.row(
        "passive, 100-step agents and assumed density",
        chains,
        {"d1": at_least(0.08), "d2": at_least(0.12), "warned": between(1, 1)},
        warned=float(warned),
    )


def _pools(example: Example, folder: Path) -> Iterator[Row]:
    """Disjoint pools of 100 from running agents: interleaved, with five seeds (one if quick); or one agent per pool."""
    learner = multikernel(step_size=5e-4, bandwidth=0.1)
    size = 100

    def watch(order: str, number: int, agents: int, label: str) -> Chains:
        seed = example.seed + 1000 * (number + 1)
        observations = simulate(
            example.reward, DENSITY, agents=agents, horizon=100, learning_rate=1e-3, order=order, seed=seed
        )
        pools = pooled(recorded(observations), size)
        assert pools.length is not None
        length = Length(50, pools.length, quick_chains=50, quick_steps=pools.length)
        options = {"seed": seed, "start": np.zeros(2), "burn_in": pools.length // 10}
        return example.watch(learner, pools, length, label, **options)

    count = 1 if example.quick else 5
    name = "multikernel, interleaved agents"
    many, few = (50_000, 10_000) if example.quick else (100_000, 100_000)
    seeds = [watch("interleaved", number, many, f"{name}, seed {number + 1} of {count}") for number in range(count)]
    figures(folder, "bayes", "multikernel", "multi-kernel inverse learner", seeds[0], example)
    yield _pooled_seeds(example, name, seeds, worst_seed=0.075)

    name = "multikernel, one agent per pool"
    alike = watch("sequential", count, few, name)
    warned = any(message.code == "pools-alike" for message in alike.warnings)
    accept = {"d1": at_least(0.25), "d2": at_least(0.25), "warned": between(1, 1)}
    yield example.row(name, alike, accept, warned=float(warned))


def _listing(example: Example, folder: Path) -> Iterator[Row]:
    weighted = reweighted(DENSITY, **LISTING, confine=ball(3.5))
    length = Length(60, quick_chains=200, quick_steps=500_000)
    chains = example.watch(weighted, independent(example.reward, DENSITY), length, "reweighted, listing")
    yield example.row("reweighted, listing's prior", chains, {"d1": at_most(0.05), "d2": at_most(0.06)})
    figures(folder, "bayes", "reweighted", "reweighted inverse learner, listing", chains, example)


def _noise_corrected(example: Example) -> Iterator[Row]:
    """The active learner, and the same with its injected noise reduced by the gradients' own."""
    answers, learner = questions(example.reward), active(step_size=5e-4, spread=0.1)
    length = Length(400, 100_000, quick_chains=400, quick_steps=50_000)
    plain = example.watch(learner, answers, length, "active", burn_in=10_000)
    yield example.row("active", plain, {"joint": at_least(0.1)})
    flat = plain.samples.reshape(-1, 2)
    places = flat[np.random.default_rng(example.seed).integers(0, len(flat), PLACES)]
    better = corrected(learner, answers, places, seed=example.seed)
    name = "active, noise corrected"
    yield example.row(name, example.watch(better, answers, length, name, burn_in=10_000), {"joint": at_most(0.08)})


def _per_run_distance(chains: Chains, example: Example) -> float:
    """The distance of a single run to the exact law, averaged over runs and coordinates."""
    assert chains.marginals is not None
    exact = example.exact.coarsen(2)
    truth = [exact.marginal(axis) for axis in range(2)]
    return float(
        np.mean([total_variation(own, truth[axis]) for chain in chains.marginals for axis, own in enumerate(chain)])
    )
