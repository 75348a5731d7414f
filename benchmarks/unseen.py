"""`reconstruct(points, gradients)` without options, on rewards that it was not tuned on.

    python -m benchmarks.unseen [--observations 200000] [--seeds 1] [--only banana]

TV: joint total variation of the samples on 28 × 28 bins. W1: mean over 40 random projections. floor: the same for an
equal number of exact draws. rms: root mean square of R̂ − R over exact draws. z: root mean square of (R̂ − R) divided by
its error bar, 1 if error bars are right. cover: share of 95 % intervals that contain R.
"""

import argparse
import resource
import time

import numpy as np

import onlooker
from benchmarks.figures import keep
from benchmarks.targets import MOST_DRAWS, TARGETS, Target
from onlooker.core.distances import quantile_distance, quantiles

LIMITS = {True: ("TV", 0.03, 0.08, 20), False: ("W1", 0.015, 0.13, 60)}


def joint_variation(found: np.ndarray, exact: np.ndarray, bins: int = 28) -> float:
    edges = [np.linspace(*np.quantile(column, [0.0005, 0.9995]), bins + 1) for column in exact.T]
    edges = [np.concatenate([[-np.inf], edge, [np.inf]]) for edge in edges]
    first, second = (np.histogramdd(part, edges)[0] / len(part) for part in (found, exact))
    return 0.5 * float(np.abs(first - second).sum())


def projected_distance(found: np.ndarray, exact: np.ndarray) -> float:
    directions = np.random.default_rng(5).standard_normal((exact.shape[1], 40))
    directions /= np.linalg.norm(directions, axis=0)
    return float(quantile_distance(found @ directions, quantiles(exact @ directions)).mean())


def score(target: Target, count: int, seed: int) -> dict[str, float]:
    seen = target.watch(count, seed)
    exact = target.draw(MOST_DRAWS)
    began = time.perf_counter()
    result = onlooker.reconstruct(seen.points, seen.gradients, agents=seen.agents, times=seen.times, seed=seed)
    samples = result.samples.reshape(-1, target.dim)
    seconds = time.perf_counter() - began
    measure = joint_variation if target.dim == 2 else projected_distance
    half = len(exact) // 2
    few = min(len(samples), half)
    floor = measure(exact[half : half + few], exact[:half])
    difference = result.reward(exact[:5000]) - target.value(exact[:5000])
    places = seen.points[np.random.default_rng(1).integers(0, len(seen), 2000)]
    about = np.nanmean(result.reward(places) - target.value(places))
    scores = (difference - about) / result.reward_error(exact[:5000])
    scores = scores[np.isfinite(scores)]
    for sentence in result.warnings:
        print("  !", sentence)
    return {
        "distance": measure(samples, exact),
        "floor": floor,
        "rms": float(np.nanstd(difference)),
        "nan": float(np.isnan(difference).mean()),
        "z": float(np.sqrt(np.mean(scores**2))),
        "cover": float(np.mean(np.abs(scores) < 1.96)),
        "seconds": seconds,
        "units": result.diagnostics.get("units", result.diagnostics.get("order", 0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observations", type=int, default=200_000, help="number of rows per reward")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--only", help="the name of one reward")
    options = parser.parse_args()
    print(
        f"{'target':15} {'seed':>4} {'distance':>9} {'floor':>6} {'rms':>6} {'nan':>5} {'z':>5} {'cover':>5} {'s':>5}"
    )
    for name, target in TARGETS.items():
        if target.dim > 40 or (options.only and options.only not in name):
            continue
        for seed in range(options.seeds):
            found = score(target, options.observations, seed)
            measure, extra, rms, limit = LIMITS[target.dim == 2]
            within = found["distance"] <= found["floor"] + extra and found["rms"] <= rms and found["nan"] <= 0.05
            within = within and found["seconds"] <= limit
            keep("unseen", target=name, dim=target.dim, seed=seed, measure=measure, within=bool(within), **found)
            print(
                f"{name:15} {seed:4d} {measure} {found['distance']:6.3f} {found['floor']:6.3f} {found['rms']:6.3f} "
                f"{found['nan']:5.3f} {found['z']:5.2f} {found['cover']:5.2f} {found['seconds']:5.1f}  "
                f"{'within' if within else 'OUTSIDE'} ({found['units']:.0f})",
                flush=True,
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    keep("unseen, memory", gib=peak)
    print(f"peak memory {peak:.2f} GiB")


if __name__ == "__main__":
    main()
