"""The cost of following a reward that jumps, the delay of detection, and the effect of forgetting rates.

`--only` chooses parts: cost, delays, agents, forgetting, memory.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np

from benchmarks.figures import keep
from onlooker import Observer
from onlooker.core.density import standard_normal
from onlooker.core.distances import total_variation
from onlooker.engine.accumulators import Grid
from onlooker.engine.over_time import over_time
from onlooker.engine.run import run
from onlooker.fit.jumps.statistic import Jump
from onlooker.fit.jumps.watch import JumpWatch
from onlooker.inverse import passive, reweighted
from onlooker.paper.jumping import (
    DENSITY,
    EVEN,
    GENERATOR,
    PLACES,
    RECOVERY,
    VARIANCE,
    clipped_density,
    jumping_pair,
)
from onlooker.paper.tracking_jumps import judge
from onlooker.simulation.agents import independent, record, simulate
from onlooker.simulation.exact.law import cells, exact_law
from onlooker.simulation.mixture import Mixture
from onlooker.simulation.reward import NoisyReward
from onlooker.simulation.switching import Scheduled, Switching

SETTINGS = {"step_size": 2e-3, "bandwidth": 0.1}


def cost(seed: int) -> None:
    """Microseconds per observation for 4000 chains, the jump detector and the Observer."""
    print("4000 chains, one dimension, a reward that jumps (η = μ²)")
    one_path = Switching(jumping_pair(), GENERATOR, SETTINGS["step_size"] ** 2, EVEN).scheduled(10**7, seed)
    own = independent(Switching(jumping_pair(), GENERATOR, SETTINGS["step_size"] ** 2, EVEN), DENSITY)
    shared = independent(one_path, DENSITY, shared=True)
    for name, learner in (("reweighted", reweighted(DENSITY, **SETTINGS)), ("passive", passive(DENSITY, **SETTINGS))):
        for kind, stream in (("one stream for all", shared), ("a stream for each", own)):
            # The first run also compiles.
            for _ in range(2):
                chains = run(learner, stream, steps=20_000, chains=4000, start=np.zeros(1), draws=1, seed=seed)
            each = chains.seconds / chains.steps
            keep("tracking, 4000 chains", who=name, stream=kind, us=1e6 * each)
            print(f"  {name:<11} {kind:<19} {1e6 * each:6.1f} µs an observation, {1e9 * each / 4000:5.2f} ns a chain")
    for dim in (1, 2, 3):
        random = np.random.default_rng(seed)
        points = random.standard_normal((400_000, dim))
        gradients = random.standard_normal(points.shape) - points
        watch, observer = JumpWatch(dim), Observer(dim, forgetting="adaptive")
        for title, learn in (("JumpWatch", watch.update), ("Observer, the watch included", observer.learn_many)):
            began = time.perf_counter()
            for first in range(0, len(points), 10_000):
                learn(points[first : first + 10_000], gradients[first : first + 10_000])
            each = (time.perf_counter() - began) / len(points)
            keep("live", who=title, dim=dim, us=1e6 * each)
            print(f"  {title}, {dim}-D: {1e6 * each:.2f} µs an observation")
        began = time.perf_counter()
        for row in range(1000):
            observer.learn_one(points[row], gradients[row])
        print(f"  Observer.learn_one, {dim}-D: {1e3 * (time.perf_counter() - began):.0f} µs")


def _shifted(jumps: int, dwell: int, size: float, seed: int) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Gradients of a parabola with noise 1, which jump by ``size`` every ``dwell`` rows."""
    random = np.random.default_rng(seed)
    count = (jumps + 1) * dwell
    points, noise = random.standard_normal((2, count, 1))
    after = (np.arange(count) // dwell % 2)[:, None]
    return points, -points + size * after + noise, tuple(dwell * (1 + jump) for jump in range(jumps))


def _watched(rate: float, points: np.ndarray, gradients: np.ndarray) -> list[Jump]:
    watch = JumpWatch(1, rate)
    watch.update(points, gradients)
    return list(watch.jumps)


def _river(detector: Callable[[], object], values: np.ndarray) -> list[Jump]:
    """Alarms of one of river's detectors, which is restarted after every alarm."""
    one, found = detector(), []
    for row, value in enumerate(values.tolist()):
        one.update(value)
        if one.drift_detected:
            found.append(Jump(row, row + 1, 0.0, 0.0))
            one = detector()
    return found


def delays(seed: int) -> None:
    """Delays and false alarms for jumps of ½, 1 and 2 noise deviations; river gets the true residual."""
    calm, jumps, dwell = 2_000_000, 200, 4000
    ways: dict[str, Callable[[np.ndarray, np.ndarray], list[Jump]]] = {}
    for rate in (1e-4, 1e-5, 1e-6, 1e-8):
        ways[f"JumpWatch({rate:g})"] = lambda points, gradients, rate=rate: _watched(rate, points, gradients)
    try:
        from river import drift
    except ImportError:
        print("river is not installed: its detectors are left out")
    else:
        # Page–Hinkley needs half the size of the jump, ADWIN a confidence.
        for size in (0.25, 0.5):
            ways[f"river PageHinkley(δ={size:g})"] = lambda points, gradients, size=size: _river(
                lambda: drift.PageHinkley(min_instances=100, delta=size, threshold=20, alpha=1.0),
                (gradients + points)[:, 0],
            )
        ways["river ADWIN(1e-6)"] = lambda points, gradients: _river(
            lambda: drift.ADWIN(delta=1e-6, clock=8), (gradients + points)[:, 0]
        )
    print(f"{jumps} jumps, {dwell} observations apart; false alarms in {calm:,} without any")
    print(f"{'':<24}{'false alarms':>14}  delay for jumps of ½, 1, 2 deviations: median (95 %), share found")
    for name, detect in ways.items():
        quiet = calm // 10 if "river" in name else calm
        points, gradients, _ = _shifted(0, quiet, 0.0, seed)
        alarms = len(detect(points, gradients))
        parts = []
        for size in (0.5, 1.0, 2.0):
            points, gradients, times = _shifted(jumps, dwell, size, seed + 1)
            found = judge(detect(points, gradients), times, len(points))
            seen = found.noticed
            parts.append(f"{np.median(seen):4.0f} ({np.quantile(seen, 0.95):4.0f}) {len(seen) / len(times):.2f}")
        keep("delays", who=name, false_alarms=50_000 * alarms / quiet, delays="; ".join(parts))
        print(f"{name:<24}{50_000 * alarms / quiet:8.2f}/50000  {'   '.join(parts)}", flush=True)


def agents(seed: int) -> None:
    """False alarms when nothing jumps and rows are not independent: agents of 100 steps, 1e6 observations each."""
    density = standard_normal(2, 1.2)

    def banana(x):
        return -0.5 * x[0] ** 2 - 2 * (x[1] - 0.5 * x[0] ** 2) ** 2

    def wells(x):
        return jnp.log(sum(jnp.exp(-2 * jnp.sum((x - jnp.array(c)) ** 2)) for c in ((1, 1), (-1, 0), (0.5, -1))))

    cases = [("Example 1's mixture", Mixture(), 1e-3)]
    for name, value in (("banana", banana), ("three wells", wells)):
        cases += [(f"{name}, noise {noise:g}", NoisyReward(2, value, noise), 1e-2) for noise in (1.0, 0.1, 0.0)]
    print("false alarms per 50 000, agents of 100 steps: one after the other, 100 taking turns")
    for name, reward, rate in cases:
        parts = []
        for order in ("sequential", "interleaved"):
            seen = simulate(
                reward, density, agents=10_000, horizon=100, learning_rate=rate, order=order, parallel=100, seed=seed
            )
            watch = JumpWatch(2)
            watch.update(seen.points, seen.gradients)
            parts.append(f"{50_000 * watch.count / len(seen):6.2f}")
        print(f"  {name:<24}{'  '.join(parts)}", flush=True)


def forgetting(seed: int) -> None:
    """Mean error over time by dwell time, for several forgetting rates and step sizes."""
    places = np.linspace(-2.5, 2.5, 51)
    truths = [-((places - place) ** 2) / (2 * VARIANCE) for place in PLACES]
    likely = [np.exp(truth) > 1e-3 for truth in truths]
    rates = (1e-2, 1e-3, 1e-4, 1e-5, "adaptive")
    print("rms error of R̂ (1-D, noise 8), mean over 40 moments, by the dwell time")
    print(f"  {'dwell':>8}  " + "  ".join(f"{rate!s:>9}" for rate in rates))
    for dwell in (1000, 10_000, 100_000):
        schedule = Scheduled(jumping_pair(8.0), tuple(dwell * (1 + i) for i in range(5)), (0, 1, 0, 1, 0, 1))
        seen = list(record(independent(schedule, DENSITY, shared=True), 6 * dwell, seed=seed))
        points, gradients = (np.concatenate([getattr(part, n) for part in seen]) for n in ("points", "gradients"))
        parts = []
        for rate in rates:
            observer, errors, done = Observer(1, forgetting=rate), [], 0
            for moment in np.linspace(dwell, 6 * dwell, 41)[1:].astype(int):
                observer.learn_many(points[done:moment], gradients[done:moment])
                done = moment
                regime = schedule.path(moment)[-1]
                inside = likely[regime]
                error = np.nanstd(observer.reward(places[inside]) - truths[regime][inside])
                errors.append(error if np.isfinite(error) else np.std(truths[regime][inside]))
            parts.append(f"{np.sqrt(np.mean(np.square(errors))):9.2f}")
        print(f"  {dwell:>8}  " + "  ".join(parts), flush=True)
    sizes = (1e-2, 2e-3, 5e-4, 1e-4)
    print("total variation of 1000 `reweighted` chains at a moment (noise 1), mean over time, by the dwell time")
    print(f"  {'dwell':>8}  " + "  ".join(f"μ={size:<7g}" for size in sizes))
    grid, axis = Grid((-3.5,), (3.5,), 35), cells(-3.5, 3.5, 0.01)
    laws = [exact_law(lambda x, c=c: -((x[..., 0] - c) ** 2) / (2 * VARIANCE), (axis,)).histogram(grid) for c in PLACES]
    for dwell in (1000, 10_000, 100_000):
        schedule = Scheduled(jumping_pair(), tuple(dwell * (1 + i) for i in range(5)), (0, 1, 0, 1, 0, 1))
        stream, parts = independent(schedule, DENSITY, shared=True), []
        for size in sizes:
            learner = reweighted(clipped_density(), step_size=size, bandwidth=0.1)
            options = {"steps": 6 * dwell, "chains": 1000, "draws": 192, "start": np.array(PLACES[:1])}
            chains = run(learner, stream, seed=seed, **options)
            path = schedule.path(6 * dwell + 1)[chains.sample_every * (1 + np.arange(chains.samples.shape[1])) - 1]
            apart = [
                total_variation(now, laws[regime])
                for now, regime in zip(over_time(chains.samples, grid), path, strict=True)
            ]
            parts.append(f"{np.mean(apart[len(apart) // 6 :]):9.3f}")
        print(f"  {dwell:>8}  " + "  ".join(parts), flush=True)
    print(f"  (recovery takes {RECOVERY:g}/μ observations)")


def _resident() -> float:
    """MiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _blocks(count: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(seed)
    for first in range(0, count, 50_000):
        points, noise = random.standard_normal((2, 50_000, 2))
        yield points, -points + 2.0 * (first // 2_000_000 % 2) + noise


def memory(seed: int) -> None:
    """Resident memory of an Observer over 1e7 observations, with jumps and forgetting."""
    for rate in ("adaptive", 1e-5):
        observer, marks = Observer(2, forgetting=rate), []
        for points, gradients in _blocks(10**7, seed):
            observer.learn_many(points, gradients)
            if observer.seen % 10**6 == 0:
                observer.reward(points[:10])
                marks.append(_resident())
        grown = ", ".join(f"{mark:.0f}" for mark in marks)
        keep("live memory", forgetting=str(rate), first_mib=marks[0], last_mib=marks[-1], seen=observer.seen)
        print(f"forgetting {rate}: {observer.seen:,} observations, {len(observer.jumps)} jumps")
        print(f"  MiB after each million: {grown}")


PARTS = {"cost": cost, "delays": delays, "agents": agents, "forgetting": forgetting, "memory": memory}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS), help="parts to run; default: all")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in chosen.only:
        print(f"\n== {part}")
        PARTS[part](chosen.seed)
