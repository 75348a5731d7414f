"""A log of ten million two-dimensional observations: written, read, inspected, reconstructed, learnt live.

    python -m benchmarks.logs [observations]

Every job is its own process, so that its peak memory can be measured.
"""

import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

import onlooker
from benchmarks.figures import keep

OBSERVATIONS = 10_000_000
AT_ONCE = 100_000
AGENT = 100


def write(folder: str, count: int) -> str:
    random = np.random.default_rng(0)
    spent = 0.0
    with onlooker.LogWriter(folder, optimizer="sgd") as log:
        for first in range(0, count, AT_ONCE):
            points = random.standard_normal((AT_ONCE, 2), np.float32)
            noise = random.standard_normal(points.shape, np.float32)
            gradients = -points * (1 + np.float32(0.3) * np.sin(2 * points)) + noise
            agents = np.arange(first, first + AT_ONCE) // AGENT
            began = time.perf_counter()
            log.add_many(points, gradients, agents=agents)
            spent += time.perf_counter() - began
    return f"{count / spent / 1e6:.1f} M observations/s"


def read(folder: str, count: int) -> str:
    rows = sum(len(rows.points) for rows, _ in onlooker.open_log(folder).batches())
    assert rows == count
    return ""


def inspect(folder: str, count: int) -> str:
    from onlooker.reconstruction.inspect_log import inspect_log

    log = onlooker.open_log(folder)
    found = inspect_log(log, log.read())
    return f"usable: {found.usable}, {found.numbers['explained']:.2f} of the gradients explained"


def reconstruct(folder: str, count: int) -> str:
    result = onlooker.reconstruct(onlooker.read_log(folder))
    axis = np.linspace(-2, 2, 41)
    places = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    # ∂R/∂x = −x(1 + .3 sin 2x).
    along = -(places**2) / 2 - 0.3 * (np.sin(2 * places) / 4 - places * np.cos(2 * places) / 2)
    return f"rms error {np.nanstd(result.reward(places) - along.sum(axis=1)):.4f}, warnings {len(result.warnings)}"


def observer(folder: str, count: int) -> str:
    live = onlooker.Observer(dim=2, forgetting="adaptive")
    live.learn_log(folder)
    return f"{live.seen} seen, {len(live.jumps)} jumps"


JOBS = {job.__name__: job for job in (write, read, inspect, reconstruct, observer)}


def main(count: int = OBSERVATIONS) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in JOBS:
            subprocess.run([sys.executable, __file__, name, folder, str(count)], check=True)


def _job(name: str, folder: str, count: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    began = time.perf_counter()
    said = JOBS[name](folder, count)
    took = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    keep("log", job=name, observations=count, seconds=took, peak_gb=peak, said=said)
    print(
        f"{name:<12} {took:>6.1f} s  {count / took / 1e6:>6.2f} M/s  peak {peak:.2f} GB (imports {before:.2f})  {said}",
        flush=True,
    )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _job(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main(*map(int, sys.argv[1:]))
