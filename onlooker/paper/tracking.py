"""Sec. 5, tracking: a reward that jumps, the three limits of a learner that follows it, and knowing that it jumped.

In one dimension R(·, i) = −(a ± .8)²/(2·.45²), switched by I + ηQ. Laws are those of `truth.switched`; each row holds
the chains against the right law and the wrong ones. The paper's second limit, an average of the rewards by the first
regime's probabilities, is one of the wrong ones: a chain that sees one reward for ever samples that reward.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from onlooker.coordinates import spherical
from onlooker.density import Density, as_density, standard_normal
from onlooker.inverse import passive, reweighted
from onlooker.inverse.base import InverseLearner
from onlooker.jump_watch import JumpWatch
from onlooker.learners.agents import independent, record
from onlooker.learners.cmdp import switched_states
from onlooker.learners.mixture import Mixture
from onlooker.learners.policy_gradient import PolicyGradient, WeakDerivative
from onlooker.learners.reward import NoisyReward, Reward
from onlooker.learners.switching import Scheduled, Switching
from onlooker.observe.jumps import Jump
from onlooker.observe.observation import Observations
from onlooker.observer import Observer
from onlooker.paper import tracking_figures
from onlooker.paper.rows import Range, Row, at_least, at_most, between, widen
from onlooker.reward.accumulate import Grid, Histogram
from onlooker.reward.distances import total_variation
from onlooker.run import run
from onlooker.truth.fokker_planck import evolve, generator
from onlooker.truth.law import GridLaw, cells, exact_law
from onlooker.truth.switched import averaged, mixture, stationary_weights, switching_law

__all__ = [
    "PRESETS",
    "Found",
    "clipped_density",
    "judge",
    "jumping_mixture",
    "jumping_pair",
    "mixture_recovery",
    "reproduce",
]

PRESETS: tuple[str, ...] = ("text",)
VARIANCE, PLACES = 0.45**2, (-0.8, 0.8)
GENERATOR = np.array([[-1.0, 1.0], [2.0, -2.0]])
EVEN = (0.5, 0.5)
DENSITY = standard_normal(1, 1.5)
STEP_SIZE, BANDWIDTH = 2e-3, 0.1
AXIS = cells(-3.5, 3.5, 0.01)
GRID = Grid((-3.5,), (3.5,), 35)
# μ times the steps until the mean of an ensemble is 1/e of a jump from its place: the relaxation of dα = −α/(2σ²) dt.
RECOVERY = 2 * VARIANCE
# Example 1's own.
MIXTURE_STEP_SIZE = 5e-4
TRUTHS = ((0.0, 1.0), (1.0, 1.0))
# Observations before and after the jump at which it is drawn, closer together just after it.
FEW_FRAMES = (-1, 300, 1000, 9000)
FRAMES = (-500, -1, 50, 100, *range(150, 900, 75), *range(1000, 3000, 400), 4000, 6000, 8000, 11_000, 15_000)
# Monte-Carlo error of a distance between a histogram of 2000 chains and its law, over that of 4000.
QUICK_ERROR = 0.015


def reproduce(preset: str | None, quick: bool, seed: int, folder: Path) -> Iterator[Row]:
    """The three regimes, the recovery after a jump, the jumps noticed, and a mixture whose parameter jumps."""
    yield from _regimes(quick, seed, folder)
    for step_size in (2e-3,) if quick else (2e-3, 1e-3, 5e-4):
        yield _recovery(step_size, 8 if quick else 16, seed)
    _over_time(seed, folder)
    yield from _watching(quick, seed)
    yield from _mixture(quick, seed, folder)
    if not quick:
        yield from _policies(seed)


def jumping_pair(noise: float = 1.0) -> tuple[Reward, ...]:
    """The two rewards in one dimension."""

    def about(place: float) -> NoisyReward:
        return NoisyReward(1, lambda x: -((x[0] - place) ** 2) / (2 * VARIANCE), noise)

    return tuple(map(about, PLACES))


def clipped_density() -> Density:
    """π, but 1e-3 at the least: 1/π throws chains out of its tails."""
    return as_density(lambda x: jnp.maximum(DENSITY.log_prob(x), jnp.log(1e-3)))


def jumping_mixture() -> tuple[Mixture, ...]:
    """Example 1 with one true parameter and with another."""
    return tuple(Mixture(truth=truth) for truth in TRUTHS)


# The three regimes


@dataclass(frozen=True)
class _Regime:
    """A learner, how fast its reward jumps, how long it runs, and how near it comes to which laws."""

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
        found = Histogram.of(chains.positions, GRID.edges)
        metrics = {f"to_{name}": total_variation(found, law) for name, law in laws.items()}
        accept = {f"to_{name}": limits for name, limits in case.accept.items()}
        settings = {"rate": case.rate, "time": case.time, "chains": chains.chains, **chains.settings}
        yield Row(case.title, metrics, widen(accept, QUICK_ERROR) if quick else accept, settings)
        right = min(case.accept, key=lambda name: case.accept[name][1] or np.inf)
        shown[case.title] = (found, right, "averaged" if right == "switching" else "averaged_by_start")
    tracking_figures.regimes(shown, laws, folder / "regimes.png")


# How soon a jump is made up for


def _recovery(step_size: float, jumps: int, seed: int) -> Row:
    """Steps until the mean of 500 chains on one stream, averaged over jumps, is 1/e of its way from the new place."""
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


@cache
def mixture_recovery() -> float:
    """The same time for the mixture, by the Fokker–Planck equation of dα = ½∇R dt + dW from one law to the other."""
    axis = cells(-4, 4, 0.05)
    before, after = jumping_mixture()
    law, new = (exact_law(reward.value, (axis, axis)) for reward in (before, after))
    drift = after.gradient_moments(np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1))[0] / 2
    matrix = generator((axis, axis), drift, np.broadcast_to(np.eye(2), (*drift.shape, 2)))
    times, offsets = np.arange(0, 0.5, 0.02), [np.linalg.norm(law.mean - new.mean)]
    for _ in times[1:]:
        law = evolve(law, matrix, 0.02, steps=8)
        offsets.append(np.linalg.norm(law.mean - new.mean))
    return float(np.interp(-np.exp(-1), -np.array(offsets) / offsets[0], times))


# Whether it jumped


@dataclass(frozen=True)
class Found:
    """Jumps that really were, against those that were noticed.

    Attributes
    ----------
    delays
        For each real one, how many observations later it was noticed; all there were when never before the next.
    dwells
        For each, how many observations later the next one was.
    false_alarms
        How many were noticed that were none.
    """

    delays: np.ndarray
    dwells: np.ndarray
    false_alarms: int

    @property
    def noticed(self) -> np.ndarray:
        """The delays of those that were."""
        return self.delays[self.delays <= self.dwells]


def judge(noticed: list[Jump], times: tuple[int, ...], observations: int) -> Found:
    """The first alarm between a jump and the next one is its own; every other one is false."""
    found = np.array([jump.found for jump in noticed])
    delays, dwells = [], np.diff([*times, observations])
    for time, dwell in zip(times, dwells, strict=True):
        own = found[(found > time) & (found <= time + dwell)]
        delays.append(own[0] - time if len(own) else observations)
    return Found(np.array(delays), dwells, len(found) - int(np.sum(delays <= dwells)))


def _watching(quick: bool, seed: int) -> Iterator[Row]:
    rate = (10 if quick else 1) * STEP_SIZE**2
    cases: tuple[tuple[str, tuple[Reward, ...], Any, float], ...] = (
        ("in one dimension, noise 1", jumping_pair(1.0), DENSITY, RECOVERY / STEP_SIZE),
        ("in one dimension, noise 8", jumping_pair(8.0), DENSITY, RECOVERY / STEP_SIZE),
        ("of Example 1's parameter", jumping_mixture(), standard_normal(2), mixture_recovery() / MIXTURE_STEP_SIZE),
    )
    for title, rewards, density, limit in cases:
        schedule = _with_jumps(Switching(rewards, GENERATOR, rate), 64, seed)
        observations = schedule.times[-1] + round(1 / (2 * rate))
        watch = JumpWatch(rewards[0].dim)
        noticed: list[Jump] = []
        for seen in record(independent(schedule, density, shared=True), observations, seed=seed):
            noticed += watch.learn(seen.points, seen.gradients)
        found = judge(noticed, schedule.times, observations)
        # Who jumps back sooner than a recovery time is not judged.
        long = found.dwells >= limit
        yield Row(
            f"potential, jumps noticed {title}",
            {
                "jumps": int(long.sum()),
                "jumps_undone_at_once": int((~long).sum()),
                "found_within_recovery": float(np.mean(found.delays[long] <= limit)),
                "false_alarms_per_50000": 50_000 * found.false_alarms / observations,
                "median_delay": float(np.median(found.delays[long])),
                "longest_delay": float(found.delays[long].max()),
            },
            {
                "jumps": at_least(60),
                "found_within_recovery": at_least(0.95),
                "false_alarms_per_50000": at_most(1.0),
            },
            {"rate": rate, "recovery": limit, "observations": observations, "false_alarms": watch.false_alarms},
        )


def _with_jumps(switching: Switching, jumps: int, seed: int) -> Scheduled:
    """A path with so many of them."""
    steps = round(2 * jumps / switching.rate)
    schedule = switching.scheduled(steps, seed)
    return Scheduled(schedule.rewards, schedule.times[:jumps], schedule.regimes[: jumps + 1])


# R̂ over time


def _over_time(seed: int, folder: Path) -> None:
    """The same jumps seen by an ensemble of chains and by an Observer that forgets when there is one."""
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


# Two dimensions


def _mixture(quick: bool, seed: int, folder: Path) -> Iterator[Row]:
    """Example 1, whose true parameter jumps: exp(R̂) at times after it, against that of an Observer that began there."""
    rewards = jumping_mixture()
    jump = 20_000
    looks = (1000, 10_000) if quick else (300, 1000, 5000, 20_000)
    recovery = mixture_recovery() / MIXTURE_STEP_SIZE
    schedule = Scheduled(rewards, (jump,), (0, 1))
    seen = next(record(independent(schedule, standard_normal(2), shared=True), jump + looks[-1], seed=seed))
    axis = cells(-3, 3, 0.05)
    exact = exact_law(rewards[1].value, (axis, axis))
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    likely = points[exact.mass.reshape(-1) > 1e-3 * exact.mass.max()]
    fresh = Observer(2, seed=seed)
    fresh.learn_many(seen.points[jump:], seen.gradients[jump:])
    best, _ = _against(fresh, points, exact, likely, rewards[1])
    cases: tuple[tuple[str, float | str | None, Range], ...] = (
        ("adaptive forgetting", "adaptive", at_most(0.05)),
        ("forgetting 1e-4", 1e-4, at_least(0.1)),
        ("nothing forgotten", None, at_least(0.3)),
    )
    for title, forgetting, limits in cases:
        observer = Observer(2, forgetting=forgetting, seed=seed)
        observer.learn_many(seen.points[:jump], seen.gradients[:jump])
        metrics: dict[str, float] = {}
        done, distance = jump, 1.0
        for after in looks:
            observer.learn_many(seen.points[done : jump + after], seen.gradients[done : jump + after])
            done = jump + after
            distance, error = _against(observer, points, exact, likely, rewards[1])
            metrics |= {f"tv_after_{after}": distance, f"rms_after_{after}": error}
        own = judge(observer.jumps, schedule.times, done)
        metrics |= {"tv_beyond_fresh": distance - best, "delay": float(own.delays[0]), "false_alarms": own.false_alarms}
        metrics |= {"effective_observations": observer.effective_observations}
        accept = {"tv_beyond_fresh": limits, "delay": at_most(recovery), "false_alarms": at_most(0)}
        yield Row(f"potential, a mixture whose parameter jumps, {title}", metrics, accept, {"forgetting": forgetting})
    frames = _frames(seen, jump, points, len(axis), seed, FEW_FRAMES if quick else FRAMES)
    tracking_figures.relearned(frames, jump, axis, rewards, folder / "relearned.png")
    tracking_figures.animation(frames, jump, axis, rewards, folder / "relearned.gif")


def _policies(seed: int) -> Iterator[Row]:
    """Example 3's agents, whose two large rewards change places: R̂ where the new R is within 8 of its maximum."""
    models, angles, jump, after = switched_states(), spherical(2, 2), 8000, 8000
    rewards = tuple(PolicyGradient(model, angles, WeakDerivative(horizon=300, every=10)) for model in models)
    schedule = Scheduled(rewards, (jump,), (0, 1))
    stream = independent(schedule, angles.uniform("coordinates"), shared=True)
    blocks = list(record(stream, jump + after, seed=seed, block=4000))
    axis = cells(0, np.pi / 2, np.pi / 120)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    truth = models[1].penalised(angles.policy(points))
    high = truth > truth.max() - 8
    for title, forgetting, limits in (
        ("adaptive forgetting", "adaptive", at_most(0.8)),
        ("nothing forgotten", None, at_least(1.5)),
    ):
        observer = Observer(2, forgetting=forgetting, seed=seed)
        for seen in blocks:
            observer.learn_many(seen.points, seen.gradients)
        own = judge(observer.jumps, schedule.times, jump + after)
        error = float(np.nanstd(observer.reward(points[high]) - truth[high]))
        metrics = {"rms_of_reward": error, "delay": float(own.delays[0]), "false_alarms": own.false_alarms}
        accept = {"rms_of_reward": limits, "delay": at_most(400), "false_alarms": at_most(0)}
        name = f"potential, a constrained MDP whose rewards change places, {title}"
        yield Row(name, metrics, accept, {"forgetting": forgetting, "observations_after": after})


def _against(
    observer: Observer, points: np.ndarray, exact: GridLaw, likely: np.ndarray, reward: Mixture
) -> tuple[float, float]:
    """Total variation of exp(R̂) to the exact law, on its cells; and rms error of R̂ where that law is."""
    height = observer.reward(points)
    mass = np.where(np.isfinite(height), np.exp(height - np.nanmax(height)), 0)
    apart = 0.5 * np.abs(mass / mass.sum() - exact.mass.reshape(-1)).sum()
    return float(apart), float(np.nanstd(observer.reward(likely) - reward.value(likely)))


def _frames(
    seen: Observations, jump: int, points: np.ndarray, side: int, seed: int, lags: tuple[int, ...]
) -> list[tuple[int, np.ndarray]]:
    """R̂ on the grid at moments about the jump."""
    observer = Observer(2, forgetting="adaptive", seed=seed)
    frames, done = [], 0
    for moment in (jump + lag for lag in lags):
        observer.learn_many(seen.points[done:moment], seen.gradients[done:moment])
        done = moment
        # What is not known to a third of the colours' range is not shown.
        sure = observer.reward_error(points) < 4
        frames.append((moment, np.where(sure, observer.reward(points), np.nan).reshape(side, side)))
    return frames
