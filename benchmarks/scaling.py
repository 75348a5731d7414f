"""Cold start, and seconds and peak memory by number of observations, dimension and pool size.

    python -m benchmarks.scaling [--only start observations dimension pools]

Every row is its own process, so that its memory can be measured and it compiles everything: "first" is the time that a
user waits, "again" the time of the same call once it is compiled. Points are normal, twenty per agent.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

from benchmarks.figures import keep

OBSERVATIONS = (10_000, 100_000, 1_000_000)
DIMENSIONS = (1, 2, 3, 5, 10)
POOLS = (10, 100, 1000, 10_000)
STARTS = {
    "python -c 'import numpy, scipy.stats'": [sys.executable, "-c", "import numpy, scipy.stats"],
    "python -c 'import jax'": [sys.executable, "-c", "import jax"],
    "python -c 'import onlooker'": [sys.executable, "-c", "import onlooker"],
    "onlooker --version": [sys.executable, "-m", "onlooker", "--version"],
}


def watched(rows: int, dim: int):
    import numpy as np

    random = np.random.default_rng(0)
    points = random.standard_normal((rows, dim), np.float32)
    gradients = -points + 0.5 * np.cos(2 * points) + random.standard_normal(points.shape, np.float32)
    return points, gradients, np.arange(rows) // 20


def timed(call: Callable[[], object]) -> dict[str, float]:
    """Seconds of the first call and of the second."""
    found = {}
    for name in ("first", "again"):
        began = time.perf_counter()
        call()
        found[name] = time.perf_counter() - began
    return found


def reconstruct(rows: int, dim: int) -> dict[str, float]:
    import onlooker

    points, gradients, agents = watched(rows, dim)
    return timed(lambda: onlooker.reconstruct(points, gradients, agents=agents))


def observer(rows: int, dim: int) -> dict[str, float]:
    import onlooker

    points, gradients, agents = watched(rows, dim)

    def learn() -> None:
        live = onlooker.Observer(dim=dim)
        for first in range(0, rows, 100_000):
            part = slice(first, first + 100_000)
            live.learn_many(points[part], gradients[part], agents[part])
        live.reward(points[:10])

    return timed(learn)


def multikernel(pool: int, dim: int) -> dict[str, float]:
    """256 chains; microseconds per step of the second run."""
    import onlooker

    steps = max(64, min(20_000, 2_000_000 // pool))
    points, gradients, _ = watched(pool * steps if pool * steps < 4_000_000 else 4_000_000, dim)
    steps = len(points) // pool
    stream = onlooker.pooled(onlooker.recorded(onlooker.observe(points, gradients)), pool)
    learner = onlooker.inverse.multikernel(step_size=1e-3, bandwidth=0.2)
    found = timed(lambda: onlooker.run(learner, stream, chains=256, draws=16, thin=1))
    return {**found, "us_per_step": found["again"] / steps * 1e6}


JOBS = {job.__name__: job for job in (reconstruct, observer, multikernel)}


def row(job: str, number: int, dim: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scaling", "--one", job, str(number), str(dim)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def start() -> None:
    print(f"{'cold start, warm disk':<40} {'seconds':>8}")
    for name, command in STARTS.items():
        seconds = []
        for _ in range(3):
            began = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            seconds.append(time.perf_counter() - began)
        keep("start", who=name, seconds=min(seconds))
        print(f"{name:<40} {min(seconds):>8.2f}", flush=True)


def observations() -> None:
    print(f"{'2-D, observations':<24} {'job':<12} {'first, s':>9} {'again, s':>9} {'peak, GiB':>10}")
    for count in OBSERVATIONS:
        for job in ("reconstruct", "observer"):
            found = row(job, count, 2)
            keep("observations", job=job, observations=count, **found)
            print(
                f"{count:<24} {job:<12} {found['first']:>9.2f} {found['again']:>9.2f} {found['gib']:>10.2f}", flush=True
            )


def dimension() -> None:
    print(f"{'20 000 rows, dimension':<24} {'job':<12} {'first, s':>9} {'again, s':>9} {'peak, GiB':>10}")
    for dim in DIMENSIONS:
        found = row("reconstruct", 20_000, dim)
        keep("dimension", dim=dim, **found)
        print(
            f"{dim:<24} {'reconstruct':<12} {found['first']:>9.2f} {found['again']:>9.2f} {found['gib']:>10.2f}",
            flush=True,
        )


def pools() -> None:
    print(f"{'256 chains, 2-D, pool of':<24} {'µs a step':>10} {'ns per chain·observation':>26} {'peak, GiB':>10}")
    for size in POOLS:
        found = row("multikernel", size, 2)
        keep("pool size", pool=size, **found)
        each = found["us_per_step"]
        print(f"{size:<24} {each:>10.1f} {1e3 * each / 256 / size:>26.2f} {found['gib']:>10.2f}", flush=True)


PARTS = {part.__name__: part for part in (start, observations, dimension, pools)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS), help="parts to run; default: all")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        warnings.simplefilter("ignore")
        found = JOBS[given.one[0]](int(given.one[1]), int(given.one[2]))
        found["gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps(found))
        return
    for part in given.only:
        PARTS[part]()
        print()


if __name__ == "__main__":
    main()
