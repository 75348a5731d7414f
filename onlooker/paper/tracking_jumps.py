"""Sec. 5, tracking: whether and how soon a jump is detected, and R̂ of an Observer that forgets after it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onlooker.core.density import standard_normal
from onlooker.core.policies import spherical
from onlooker.data.observations import Observations
from onlooker.fit.jumps.statistic import Jump
from onlooker.fit.jumps.watch import JumpWatch
from onlooker.live.observer import Observer
from onlooker.paper import tracking_figures
from onlooker.paper.jumping import (
    DENSITY,
    GENERATOR,
    MIXTURE_STEP_SIZE,
    RECOVERY,
    STEP_SIZE,
    jumping_mixture,
    jumping_pair,
    mixture_recovery,
)
from onlooker.paper.rows import Range, Row, at_least, at_most
from onlooker.simulation.agents import independent, record
from onlooker.simulation.cmdp import switched_states
from onlooker.simulation.exact.law import GridLaw, cells, exact_law
from onlooker.simulation.mixture import Mixture
from onlooker.simulation.policy_gradient import PolicyGradient, WeakDerivative
from onlooker.simulation.reward import Reward
from onlooker.simulation.switching import Scheduled, Switching

__all__ = ["Detections", "judge", "mixtures", "policies", "watching"]

# When R̂ is drawn, in observations after the jump; closer together just after it.
FEW_FRAMES = (-1, 300, 1000, 9000)
FRAMES = (-500, -1, 50, 100, *range(150, 900, 75), *range(1000, 3000, 400), 4000, 6000, 8000, 11_000, 15_000)


@dataclass(frozen=True)
class Detections:
    """Detected jumps, compared with the real ones.

    Attributes
    ----------
    delays
        For each real jump, the number of observations until it was detected; the number of all observations if it was
        not detected before the next.
    dwells
        For each real jump, the number of observations until the next.
    false_alarms
        Number of detections without a jump.
    """

    delays: np.ndarray
    dwells: np.ndarray
    false_alarms: int

    @property
    def noticed(self) -> np.ndarray:
        """The delays of the jumps that were detected."""
        return self.delays[self.delays <= self.dwells]


def judge(noticed: list[Jump], times: tuple[int, ...], observations: int) -> Detections:
    """Assign alarms to jumps: the first between a jump and the next is that jump's, all others are false."""
    alarms = np.array([jump.found for jump in noticed])
    delays, dwells = [], np.diff([*times, observations])
    for time, dwell in zip(times, dwells, strict=True):
        own = alarms[(alarms > time) & (alarms <= time + dwell)]
        delays.append(own[0] - time if len(own) else observations)
    return Detections(np.array(delays), dwells, len(alarms) - int(np.sum(delays <= dwells)))


def watching(quick: bool, seed: int) -> Iterator[Row]:
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
        for seen in record(independent(schedule, density, shared=True), observations, seed=seed):
            watch.update(seen.points, seen.gradients)
        noticed = list(watch.jumps)
        detections = judge(noticed, schedule.times, observations)
        # A reward that jumps back within a recovery time is not judged.
        long = detections.dwells >= limit
        yield Row(
            f"potential, jumps noticed {title}",
            {
                "jumps": int(long.sum()),
                "jumps_undone_at_once": int((~long).sum()),
                "found_within_recovery": float(np.mean(detections.delays[long] <= limit)),
                "false_alarms_per_50000": 50_000 * detections.false_alarms / observations,
                "median_delay": float(np.median(detections.delays[long])),
                "longest_delay": float(detections.delays[long].max()),
            },
            {
                "jumps": at_least(60),
                "found_within_recovery": at_least(0.95),
                "false_alarms_per_50000": at_most(1.0),
            },
            {"rate": rate, "recovery": limit, "observations": observations, "false_alarms": watch.false_alarms},
        )


def _with_jumps(switching: Switching, jumps: int, seed: int) -> Scheduled:
    """A path of the switching reward with the given number of jumps."""
    steps = round(2 * jumps / switching.rate)
    schedule = switching.scheduled(steps, seed)
    return Scheduled(schedule.rewards, schedule.times[:jumps], schedule.regimes[: jumps + 1])


# Two dimensions


def mixtures(quick: bool, seed: int, folder: Path) -> Iterator[Row]:
    """Example 1 whose true parameter jumps: exp(R̂) after the jump, compared with an Observer that starts there."""
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


def policies(seed: int) -> Iterator[Row]:
    """Example 3 whose two large rewards change places: R̂ where the new R is within 8 of its maximum."""
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
    """Total variation of exp(R̂) to the exact law, on its cells; and rms error of R̂ where that law has its mass."""
    height = observer.reward(points)
    mass = np.where(np.isfinite(height), np.exp(height - np.nanmax(height)), 0)
    apart = 0.5 * np.abs(mass / mass.sum() - exact.mass.reshape(-1)).sum()
    return float(apart), float(np.nanstd(observer.reward(likely) - reward.value(likely)))


def _frames(
    seen: Observations, jump: int, points: np.ndarray, side: int, seed: int, lags: tuple[int, ...]
) -> list[tuple[int, np.ndarray]]:
    """R̂ on the grid at moments around the jump."""
    observer = Observer(2, forgetting="adaptive", seed=seed)
    frames, done = [], 0
    for moment in (jump + lag for lag in lags):
        observer.learn_many(seen.points[done:moment], seen.gradients[done:moment])
        done = moment
        # Points where the error is above a third of the colours' range are not drawn.
        sure = observer.reward_error(points) < 4
        frames.append((moment, np.where(sure, observer.reward(points), np.nan).reshape(side, side)))
    return frames
