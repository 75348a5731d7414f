"""Example 2: logistic regression on a9a, N = 124, by the active and the multi-kernel inverse learners (fig:logistic).

w1_mean and w1_max are W1 of the 124 marginals (`eq:L1`) to a long HMC run (`exact.reference`), logit_w1 is W1
of ψᵀα over 200 rows ψ of the data, which tests the joint law. Independent draws of the Laplace prior and of N(0, I),
which ignore the data, are measured too: an inverse learner that is no better has learnt nothing.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jax import Array

from onlooker.core.density import Density, standard_normal
from onlooker.data.observations import Observation
from onlooker.data.stream import Stream
from onlooker.engine.run import Chains, run
from onlooker.inverse import InverseLearner, active, classical, multikernel
from onlooker.paper import figures
from onlooker.paper.listing import listing_multikernel, listing_reset
from onlooker.paper.listing_arithmetic import steps_until_nan
from onlooker.paper.naive import naive
from onlooker.paper.rows import Range, Row, at_least, at_most, between, widen
from onlooker.reconstruction import plots
from onlooker.reconstruction.reconstruct import reconstruct
from onlooker.simulation.agents import independent, independent_pools, questions, running_pools, simulate
from onlooker.simulation.exact.reference import Reference, a9a_reference
from onlooker.simulation.logistic import Logistic, on_a9a
from onlooker.simulation.nearest_pools import nearest_of_pools

__all__ = ["PRESETS", "reproduce"]

PRESETS = ("text", "listing", "corrected")
# The paper's step size and length: ten sweeps of the listing's 32 400 rows.
STEP, SWEEP, STEPS = 2.5e-4, 32_400, 324_000
# A step size and a length at which chains reach the law.
LONG_STEP, LONG_STEPS = 1e-2, 3_240_000
# The listing's pools: their size, and its kernel's variance of 0.1.
POOL = 100
LISTING = {"step_size": STEP, "bandwidth": 0.1**0.5}
# The coordinate in the paper's figure, counted from 1.
SHOWN_COORDINATE = 117
# Largest increase of a distance with a quarter of the observations; draws of the prior are at .127.
QUICK_ERROR = 0.03


@dataclass
class Example:
    """The reward on a9a, its exact law, and runs that are compared with it."""

    quick: bool
    seed: int
    shown: dict[str, np.ndarray] = field(default_factory=dict)

    @cached_property
    def reward(self) -> Logistic:
        return on_a9a("cyclic", SWEEP)

    @cached_property
    def reference(self) -> Reference:
        return a9a_reference()

    @cached_property
    def baselines(self) -> dict[str, np.ndarray]:
        """W1 per coordinate of independent draws from laws that ignore the data."""
        generator, shape = np.random.default_rng(self.seed), (100_000, self.reward.dim)
        draws = {"prior": generator.laplace(size=shape), "standard_normal": generator.standard_normal(shape)}
        return {name: self.reference.distances(samples) for name, samples in draws.items()}

    @property
    def uninformed(self) -> float:
        """W1 of draws of N(0, I): a learner that is farther off has learnt nothing."""
        return float(self.baselines["standard_normal"].mean())

    @property
    def density(self) -> Density:
        return standard_normal(self.reward.dim)

    def pools(self) -> Stream:
        """The listing's pools: whole, or if quick only their nearest members, which leads to the same law."""
        if self.quick:
            return nearest_of_pools(self.reward, POOL)
        return independent_pools(self.reward, self.density, POOL, shared=True)

    def watch(
        self, learner: InverseLearner, stream: Stream, steps: int, label: str, chains: int = 1, seed: int | None = None
    ) -> Chains:
        seed = self.seed if seed is None else seed
        draws = 32_768 if chains <= 4 else 4096
        result = run(learner, stream, chains=chains, steps=steps, seed=seed, draws=draws, label=label)
        if result.interrupted:
            raise KeyboardInterrupt
        return result

    def row(
        self,
        name: str,
        chains: Chains,
        accept: dict[str, Range],
        beside: Row | None = None,
        **extra: Any,
    ) -> Row:
        """Distances of each chain, averaged over chains; w1_mean must be within .02 of that of ``beside``."""
        distances = np.array([self.reference.distances(samples) for samples in chains.samples])
        logits = np.array([self.reference.logit_distances(samples, self.reward) for samples in chains.samples])
        # Figures show one run, as the paper's do.
        self.shown[name] = chains.samples[0]
        kept = ("kernel_ess", "nearest_distance", "resets", "lost_chains")
        metrics = {
            "w1_mean": float(distances.mean()),
            "w1_max": float(distances.max(axis=1).mean()),
            "logit_w1": float(logits.mean()),
            **{metric: float(value) for metric, value in chains.diagnostics.items() if metric in kept},
            "w1_shown_coordinate": float(distances[:, SHOWN_COORDINATE - 1].mean()),
            **{f"w1_of_{law}": float(each.mean()) for law, each in self.baselines.items()},
            "w1_of_prior_shown_coordinate": float(self.baselines["prior"][SHOWN_COORDINATE - 1]),
            "w1_error_of_truth": float(self.reference.error.mean()),
            **extra,
        }
        if beside is not None:
            metrics["difference"] = abs(metrics["w1_mean"] - beside.metrics["w1_mean"])
            accept = {**accept, "difference": at_most(0.02)}
        settings: dict[str, Any] = {
            **chains.settings,
            "chains": chains.chains,
            "steps": chains.steps,
            "quick": self.quick,
            "seconds": round(chains.seconds, 2),
        }
        return Row(name, metrics, accept, settings)


def reproduce(preset: str | None, quick: bool, seed: int, folder: Path) -> Iterator[Row]:
    """Run the rows of a preset (default: all, or with ``quick`` the paper's) and draw the figures."""
    example = Example(quick, seed)
    if preset in (None, "text"):
        yield from _text(example)
    if preset in (None, "listing"):
        yield from _listing(example)
    if preset == "corrected" or (preset is None and not quick):
        yield from _corrected(example)
    _figures(example, folder)


def _text(example: Example) -> Iterator[Row]:
    from numpyro.diagnostics import effective_sample_size

    asked = questions(example.reward)
    for learner in (classical(step_size=STEP), active(step_size=STEP, spread=0.1)):
        name = f"{learner.name}, the paper's length"
        chains = example.watch(learner, asked, STEPS, name, chains=12)
        each = [effective_sample_size(chains.samples[..., axis]) for axis in range(example.reward.dim)]
        draws = float(np.median(each)) / chains.chains
        yield example.row(name, chains, {"w1_mean": between(0.34, 0.45)}, effective_draws_per_run=draws)
    for learner in (classical(step_size=LONG_STEP), active(step_size=LONG_STEP, spread=0.1)):
        name = f"{learner.name}, step size 1e-2"
        chains = example.watch(learner, asked, LONG_STEPS, name, chains=2 if example.quick else 4)
        together = example.reference.distances(chains.samples.reshape(-1, example.reward.dim))
        yield example.row(
            name,
            chains,
            {"w1_mean": at_most(0.04), "w1_max": at_most(0.10)},
            w1_mean_together=float(together.mean()),
            w1_max_together=float(together.max()),
        )

    name = "multikernel, bandwidth .1, no resets"
    # Nearly all weight is on one observation, as in the listing: the same seed would give the same run.
    chains = example.watch(
        multikernel(step_size=STEP, bandwidth=0.1), example.pools(), STEPS, name, seed=example.seed + 1
    )
    accept = {"w1_mean": between(2.3, 4.8), "kernel_ess": at_most(1.1)}
    yield example.row(name, chains, accept, warned=float(_warned(chains)))

    name = "multikernel, step size 1e-2"
    steps = STEPS if example.quick else LONG_STEPS
    learner = multikernel(step_size=LONG_STEP, bandwidth=0.1**0.5)
    chains = example.watch(learner, nearest_of_pools(example.reward, POOL), steps, name)
    yield example.row(name, chains, {"w1_mean": at_least(example.uninformed)})

    # The kernel-free Langevin step of fig:logistic(c), μ/2 g + √μ w, has naive's μ halved.
    name = "naive, no kernel"
    learner = naive(step_size=STEP / 2, bandwidth=None)
    chains = example.watch(learner, independent(example.reward, example.density), STEPS, name)
    yield example.row(name, chains, {"w1_mean": at_least(5)})


def _listing(example: Example) -> Iterator[Row]:
    learner = listing_multikernel(**LISTING, reset=listing_reset(example.reward.dim))
    name = "multikernel, listing"
    main = example.row(
        name,
        chains := example.watch(learner, example.pools(), STEPS, name),
        {"w1_mean": between(0.58, 0.63), "kernel_ess": at_most(1.1), "warned": between(1, 1)},
        warned=float(_warned(chains)),
    )
    yield main
    name = "multikernel, listing, gradient deleted"
    yield example.row(name, example.watch(learner, _blind(example.pools()), STEPS, name), {}, beside=main)
    name = "multikernel, listing, no resets"
    chains = example.watch(multikernel(**LISTING), example.pools(), STEPS, name)
    yield example.row(name, chains, {"w1_mean": between(2.3, 4.8), "kernel_ess": at_most(1.1)})
    if example.quick:
        return
    name = "multikernel, listing, nearest of the pool (shortcut)"
    chains = example.watch(learner, nearest_of_pools(example.reward, POOL), STEPS, name)
    accept = {"w1_mean": between(0.58, 0.63), "kernel_ess": at_most(1.1)}
    yield example.row(name, chains, accept, beside=main)
    name = "multikernel, listing, agents at work"
    agents = running_pools(on_a9a("random"), example.density, POOL, learning_rate=0.01, horizon=50)
    yield example.row(name, example.watch(learner, agents, STEPS, name), {"w1_mean": at_least(example.uninformed)})

    died, resets = steps_until_nan(example.reward, example.seed, 3 * STEPS)
    yield Row(
        "multikernel, listing to the letter",
        {"steps_until_nan": died, "resets": resets},
        {"steps_until_nan": at_most(3 * STEPS - 1)},
        {"arithmetic": "float64", **LISTING},
    )


def _corrected(example: Example) -> Iterator[Row]:
    """A potential fitted to a hundredth of the observations: learners' starts, or runs of 50 steps."""
    reward = on_a9a("random")
    paper = "multikernel, listing"
    if paper not in example.shown:
        # For the figures; with the nearest of each pool it has the same law as its row.
        learner = listing_multikernel(**LISTING, reset=listing_reset(reward.dim))
        example.shown[paper] = example.watch(learner, nearest_of_pools(example.reward, POOL), STEPS, paper).samples[0]
    agents = 2000 if example.quick else 8000
    ranges: dict[str, tuple[int, int, dict[str, Range]]] = {
        "potential, independent points": (
            50 * agents,
            1,
            {"w1_mean": at_most(0.08), "w1_max": at_most(0.40), "logit_w1": at_most(0.6)},
        ),
        "potential, 50-step agents": (
            agents,
            50,
            {"w1_mean": at_most(0.065), "w1_max": at_most(0.22), "logit_w1": at_most(0.3)},
        ),
    }
    for name, (count, horizon, accept) in ranges.items():
        seen = simulate(reward, example.density, agents=count, horizon=horizon, learning_rate=0.01, seed=example.seed)
        began = time.perf_counter()
        result = reconstruct(seen.points, seen.gradients, agents=seen.agents, times=seen.times, seed=example.seed)
        flat = result.samples.reshape(-1, reward.dim)
        seconds = time.perf_counter() - began
        distances = example.reference.distances(flat)
        example.shown[name] = flat
        metrics = {
            "w1_mean": float(distances.mean()),
            "w1_max": float(distances.max()),
            "logit_w1": float(example.reference.logit_distances(flat, reward).mean()),
            **{f"w1_of_{law}": float(each.mean()) for law, each in example.baselines.items()},
            **{name: result.diagnostics[name] for name in ("rhat", "ess", "unexplored_share", "sampling_mismatch")},
        }
        kept = ("units", "candidates", "directions", "steep_weights")
        settings = {setting: result.diagnostics[setting] for setting in kept}
        settings |= {"observations": len(seen), "quick": example.quick, "seconds": round(seconds, 2)}
        yield Row(name, metrics, widen(accept, QUICK_ERROR) if example.quick else accept, settings)


def _warned(chains: Chains) -> bool:
    return {"pools-narrow", "pools-far"} <= {message.code for message in chains.warnings}


def _blind(stream: Stream) -> Stream:
    """The same pools with every gradient zero."""

    def without(seen: Observation) -> Observation:
        return Observation(seen.point, 0 * seen.gradient)

    if stream.answer is not None:
        answer = stream.answer
        return replace(stream, answer=lambda point, xi: without(answer(point, xi)))

    def draw(data: Any, carry: Any, key: Array, steps: int, lanes: int | None) -> tuple[Any, Observation]:
        carry, seen = stream.draw(data, carry, key, steps, lanes)
        return carry, without(seen)

    return replace(stream, draw=draw)


def _figures(example: Example, folder: Path) -> None:
    floor, shown = example.reference.error, example.shown
    baselines = {"Laplace prior": example.baselines["prior"], "N(0, I)": example.baselines["standard_normal"]}

    def distances(names: dict[str, str]) -> dict[str, np.ndarray]:
        return {label: example.reference.distances(shown[name]) for label, name in names.items() if name in shown}

    groups = {
        "active": {
            "active, the paper's length": "active, the paper's length",
            "active, μ = 1e-2": "active, step size 1e-2",
        },
        "corrected": {
            "multikernel, listing (the paper's)": "multikernel, listing",
            "potential, independent points": "potential, independent points",
            "potential, 50-step agents": "potential, 50-step agents",
        },
        "multikernel": {
            "multikernel, listing": "multikernel, listing",
            "gradient deleted": "multikernel, listing, gradient deleted",
            "no resets": "multikernel, listing, no resets",
            "bandwidth .1, no resets": "multikernel, bandwidth .1, no resets",
            "μ = 1e-2": "multikernel, step size 1e-2",
        },
    }
    for learner, names in groups.items():
        drawn = distances(names)
        if drawn:
            plots.save(figures.distances(drawn, baselines, floor), folder / f"logistic-{learner}.png")
    truth = example.reference.coordinates[SHOWN_COORDINATE - 1]
    lengths = {
        "marginal": ("the paper's length", "multikernel, listing", "naive, no kernel"),
        "marginal-long": ("step size 1e-2", "multikernel, step size 1e-2", ""),
    }
    for file, (length, pools, lost) in lengths.items():
        names = {
            "classical": f"classical, {length}",
            "active": f"active, {length}",
            "multikernel": pools,
            "naive": lost,
        }
        drawn = {label: shown[name][:, SHOWN_COORDINATE - 1] for label, name in names.items() if name in shown}
        title = f"coordinate {SHOWN_COORDINATE} of {len(floor)}, {length}"
        if drawn:
            plots.save(figures.one_marginal(drawn, truth, title), folder / f"logistic-{file}.png")
    ours = "potential, 50-step agents"
    if ours in shown:
        names = {"multikernel, listing": "multikernel, listing", "potential": ours}
        drawn = {label: shown[name][:, SHOWN_COORDINATE - 1] for label, name in names.items() if name in shown}
        title = f"coordinate {SHOWN_COORDINATE} of {len(floor)}, the paper's and ours"
        plots.save(figures.one_marginal(drawn, truth, title), folder / "logistic-corrected-marginal.png")
