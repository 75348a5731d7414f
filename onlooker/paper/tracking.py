"""Sec. 5, tracking: a reward that jumps, the three limits of a learner that follows it, and the detection of jumps.

In one dimension R(·, i) = −(a ± .8)²/(2·.45²), switched by I + ηQ. Each row compares chains with the right law
and with wrong ones, from `exact.switched`. The paper's second limit, an average of the rewards by the first regime's
probabilities, is one of the wrong ones: a chain that sees one reward forever samples that reward.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onlooker.core.distances import total_variation
from onlooker.core.histogram import Histogram
from onlooker.engine.run import run
from onlooker.inverse import passive, reweighted
from onlooker.inverse.base import InverseLearner
from onlooker.live.observer import Observer
from onlooker.paper import tracking_figures
from onlooker.paper.jumping import (
    AXIS,
    BANDWIDTH,
    DENSITY,
    EVEN,
    GENERATOR,
    GRID,
    PLACES,
    RECOVERY,
    STEP_SIZE,
    VARIANCE,
    clipped_density,
    jumping_pair,
)
from onlooker.paper.rows import Range, Row, at_least, at_most, between, widen
from onlooker.paper.tracking_jumps import mixtures, policies, watching
from onlooker.simulation.agents import independent, record
from onlooker.simulation.exact.law import GridLaw
from onlooker.simulation.exact.switched import averaged, mixture, stationary_weights, switching_law
from onlooker.simulation.switching import Scheduled, Switching

__all__ = ["PRESETS", "reproduce"]

PRESETS: tuple[str, ...] = ("text",)
# Largest increase of a distance to a law with 2000 chains instead of 4000.
QUICK_ERROR = 0.015


def reproduce(preset: str | None, quick: bool, seed: int, folder: Path) -> Iterator[Row]:
    """The three regimes, the recovery after a jump, the jumps detected, and a mixture whose parameter jumps."""
    yield from _regimes(quick, seed, folder)
    for step_size in (2e-3,) if quick else (2e-3, 1e-3, 5e-4):
        yield _recovery(step_size, 8 if quick else 16, seed)
    _over_time(seed, folder)
    yield from watching(quick, seed)
    yield from mixtures(quick, seed, folder)
    if not quick:
        yield from policies(seed)


# The three regimes


@dataclass(frozen=True)
class _Regime:
    """A learner, the rate at which its reward jumps, the length of its run, and the accepted distances to the laws."""

    title: str
    learner: InverseLearner
    rate: float
    time: float
    accept: Mapping[str, Range]


def _laws() -> dict[str, GridLaw]:
    rewards = [lambda x, place=place: -((x[..., 0] - place) ** 2) / (2 * VARIANCE) for place in PLACES]
    drifts = -(AXIS - np.array(PLACES)[:, None]) / (2 * VARIANCE)
    return {
        "switching": switching_law(AXIS, drifts, np.ones(len(AXIS)), GENERATOR, EVEN, 0.0, 1.0),
        "mixture": mixture(rewards, EVEN, (AXIS,)),
        "averaged": averaged(rewards, stationary_weights(GENERATOR).tolist(), (AXIS,)),
        "averaged_by_start": averaged(rewards, EVEN, (AXIS,)),
    }


def _regimes(quick: bool, seed: int, folder: Path) -> Iterator[Row]:
    laws = {name: law.histogram(GRID) for name, law in _laws().items()}
    settings: dict[str, Any] = {"step_size": STEP_SIZE, "bandwidth": BANDWIDTH}
    importance, first = reweighted(DENSITY, **settings), passive(DENSITY, **settings)
    wrong = at_least(0.15)
    cases = (
        _Regime(
            "reweighted, jumps as fast as it learns (η = μ)",
            importance,
            STEP_SIZE,
            1.0,
            {"switching": at_most(0.08), "mixture": wrong, "averaged": wrong, "averaged_by_start": wrong},
        ),
        _Regime(
            "reweighted, rare jumps (η = μ²)",
            importance,
            STEP_SIZE**2,
            3.0,
            {"mixture": at_most(0.07), "averaged_by_start": at_least(0.4), "switching": wrong, "averaged": wrong},
        ),
        _Regime(
            "reweighted, frequent jumps (η = .2115)",
            importance,
            0.2115,
            3.0,
            {"averaged": at_most(0.09), "mixture": wrong, "switching": wrong, "averaged_by_start": wrong},
        ),
        _Regime(
            "passive, rare jumps (η = μ²)",
            first,
            STEP_SIZE**2,
            20.0,
            {"mixture": at_most(0.09), "averaged_by_start": at_least(0.4), "switching": wrong, "averaged": wrong},
        ),
    )
    shown: dict[str, tuple[Histogram, str, str]] = {}
    for case in cases:
        stream = independent(Switching(jumping_pair(), GENERATOR, case.rate, EVEN), DENSITY)
        chains = run(
            case.learner,
            stream,
            steps=round(case.time / STEP_SIZE),
            chains=2000 if quick else 4000,
            start=np.zeros(1),
            draws=1,
            seed=seed,
            label=case.title,
        )
        histogram = Histogram.of(chains.positions, GRID.edges)
        metrics = {f"to_{name}": total_variation(histogram, law) for name, law in laws.items()}
        accept = {f"to_{name}": limits for name, limits in case.accept.items()}
        settings = {"rate": case.rate, "time": case.time, "chains": chains.chains, **chains.settings}
        yield Row(case.title, metrics, widen(accept, QUICK_ERROR) if quick else accept, settings)
        right = min(case.accept, key=lambda name: case.accept[name][1] or np.inf)
        shown[case.title] = (histogram, right, "averaged" if right == "switching" else "averaged_by_start")
    tracking_figures.regimes(shown, laws, folder / "regimes.png")


# Recovery after a jump


def _recovery(step_size: float, jumps: int, seed: int) -> Row:
    """Steps until the mean of 500 chains on one stream, averaged over jumps, has 1/e of the jump left to go."""
    dwell = round(10 * RECOVERY / step_size)
    schedule = Scheduled(
        jumping_pair(), tuple(dwell * (1 + jump) for jump in range(jumps)), tuple(jump % 2 for jump in range(jumps + 1))
    )
    steps = dwell * (jumps + 1)
    chains = run(
        reweighted(clipped_density(), step_size=step_size, bandwidth=BANDWIDTH),
        independent(schedule, DENSITY, shared=True),
        steps=steps,
        chains=500,
        start=np.array(PLACES[:1]),
        draws=steps // 8 + 1,
        seed=seed,
        label=f"reweighted, recovery at μ = {step_size:g}",
    )
    means = chains.samples[:, :, 0].mean(axis=0)
    times = chains.sample_every * (1 + np.arange(len(means)))
    lags = np.arange(0, dwell - chains.sample_every, chains.sample_every)
    sides = [np.sign(PLACES[regime]) for regime in schedule.regimes[1:]]
    offset = np.mean(
        [
            PLACES[1] - side * np.interp(time + lags, times, means)
            for side, time in zip(sides, schedule.times, strict=True)
        ],
        axis=0,
    )
    recovered = float(np.interp(-np.exp(-1), -offset / offset[0], lags))
    return Row(
        f"reweighted, recovery at μ = {step_size:g}",
        {"recovery_steps": recovered, "recovery_over_theory": recovered * step_size / RECOVERY},
        {"recovery_over_theory": between(0.8, 1.2)},
        {"jumps": jumps, "chains": chains.chains, **chains.settings},
    )


# R̂ over time


def _over_time(seed: int, folder: Path) -> None:
    """The same jumps followed by an ensemble of chains and by an Observer that forgets when it detects one."""
    observations = 24_000
    schedule = Scheduled(jumping_pair(), (6000, 9000, 15_000), (0, 1, 0, 1))
    seen = next(record(independent(schedule, DENSITY, shared=True), observations, seed=seed))
    observer, every = Observer(1, forgetting="adaptive", seed=seed), 200
    places = np.linspace(-3, 3, 121)
    rewards = []
    for first in range(0, observations, every):
        rows = slice(first, first + every)
        observer.learn_many(seen.points[rows], seen.gradients[rows])
        rewards.append(observer.reward(places) if observer.seen >= 1000 else np.full(len(places), np.nan))
    chains = run(
        reweighted(clipped_density(), step_size=STEP_SIZE, bandwidth=BANDWIDTH),
        independent(schedule, DENSITY, shared=True),
        steps=observations,
        chains=1000,
        thin=32,
        draws=observations // 64,
        start=np.array(PLACES[:1]),
        seed=seed,
        label="an ensemble over time",
    )
    path = folder / "over-time.png"
    tracking_figures.over_time(chains, places, np.array(rewards), every, schedule, observer.jumps, path)
