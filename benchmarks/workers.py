"""Logs of any size: memory, CPU seconds and bits of `reconstruct` by one process, by several, on Ray and from a store.

    python -m benchmarks.workers [--rows 20000000] [--dim 2] [--before CHECKOUT] [--only memory,bits,faults,tasks,…]

The log is that of 2000 learners that climb two hills, and it is kept in --folder for the next time. Every call is made
in a process of its own: "peak" is its largest resident memory, "CPU" its processor seconds and "workers" those of the
processes that it started. "bits" is a digest of R̂ and its error bars on a grid, which must be the same in all rows.
With --before, the same call is made with an earlier checkout of Onlooker, whose R̂ is compared.

A wall-clock speed-up needs an idle machine with as many cores as workers; "parallel" is CPU over wall seconds while
tasks run, and says whether anything serialises. Nothing here is promised of a real cluster.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.figures import keep

AGENTS, HORIZON, RATE, NOISE = 2000, 100, 0.02, 2.0
# The call, in a process of its own.
CALL = """
import hashlib, json, os, resource, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
def main():
    import onlooker
    log, options, places, out = json.loads(sys.argv[1])
    began, cpu = time.perf_counter(), time.process_time()
    result = onlooker.reconstruct(log, **options)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    known = result.found.diagnostics
    points = np.load(places)
    value, error = result.reward(points), result.reward_error(points)
    np.savez(out, value=value, error=error)
    print("FOUND", json.dumps({"rows": known["observations"], "wall": wall, "cpu": cpu,
        "workers": children.ru_utime + children.ru_stime, "peak": own.ru_maxrss / 2**20,
        "bits": hashlib.sha256(value.tobytes() + error.tobytes()).hexdigest()[:12],
        "codes": [message.code for message in result.found.warnings]}))
if __name__ == "__main__":
    main()
"""


def made(folder: Path, rows: int, dim: int) -> Path:
    """The log of so many rows, written unless it is there."""
    import onlooker

    log = folder / f"{dim}d-{rows}"
    if log.exists():
        return log
    random = np.random.default_rng(0)
    centre = np.zeros((2, dim), np.float32)
    centre[0, :2], centre[1, :2] = (-1.1, 0.6), (1.1, -0.7)
    place = 1.5 * random.standard_normal((AGENTS, dim)).astype(np.float32)
    age, agents = random.integers(0, HORIZON, AGENTS), np.arange(AGENTS)
    hidden = log.with_name(f"{log.name}-part")
    with onlooker.LogWriter(hidden, seconds=1e9) as writer:
        for step in range(rows // AGENTS):
            slope = -0.6 * place
            for height, width, at in zip((6.0, 5.0), (1.0, 0.8), centre, strict=True):
                away = place - at
                slope -= 2 * height / width * away * np.exp(-(away**2).sum(axis=1, keepdims=True) / width)
            gradient = slope + NOISE * random.standard_normal(place.shape, np.float32)
            writer.add_many(place, gradient, agents=agents, times=np.full(AGENTS, float(step)))
            place, age = place + np.float32(RATE) * gradient, age + 1
            old = age >= HORIZON
            place[old], age[old] = 1.5 * random.standard_normal((old.sum(), dim)), 0
    hidden.rename(log)
    return log


class Bench:
    """Calls of `reconstruct` on one log, one after the other."""

    def __init__(self, folder: Path, log: Path, dim: int) -> None:
        self.folder, self.log, self.rows = folder, log, []
        axis = np.linspace(-2.5, 2.5, 41 if dim == 2 else 400)
        if dim == 2:
            places = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        else:
            places = np.random.default_rng(1).standard_normal((400, dim))
        np.save(folder / "places.npy", places)

    def call(self, name: str, source: str | None = None, checkout: Path | None = None, **options) -> dict:
        """One call; printed."""
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(checkout or Path.cwd())}
        script, out = self.folder / "call.py", self.folder / f"{name.replace(' ', '-')}.npz"
        script.write_text(CALL)
        given = json.dumps([source or str(self.log), options, str(self.folder / "places.npy"), str(out)])
        ran = subprocess.run(
            [sys.executable, script, given],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
        if not lines:
            raise RuntimeError(f"{name}: {ran.stderr.strip().splitlines()[-1:]}")
        found = {"name": name, **json.loads(lines[-1][6:])}
        self.rows.append(found)
        shown = "  ".join(f"{what} {found[what]:8.2f}" for what in ("cpu", "workers", "wall", "peak"))
        print(f"{name:<34} {found['rows']:>12,} rows  {shown} GiB  bits {found['bits']}  {found['codes']}", flush=True)
        return found

    def compared(self, one: str, other: str) -> None:
        """How far R̂ of two calls is apart, in error bars and in its spread."""
        left, right = (np.load(self.folder / f"{name.replace(' ', '-')}.npz") for name in (one, other))
        apart = left["value"] - right["value"]
        known = np.isfinite(apart)
        apart = apart[known] - apart[known].mean()
        bars, spread = left["error"][known], np.nanstd(left["value"])
        print(
            f"    {one} and {other}: {np.abs(apart).max() / spread:.2g} of R̂'s spread at most, "
            f"{np.abs(apart / bars).max():.2f} error bars at most, {np.median(np.abs(apart / bars)):.2f} in the median"
        )


def tasks() -> None:
    """Milliseconds of an empty task on each engine."""
    from onlooker.workers import engine_for
    from tests.workers.calls import asleep, squared

    for workers in (2, "ray"):
        with engine_for(workers) as engine:
            list(engine.each(squared, range(50), 0))
            began = time.perf_counter()
            list(engine.each(squared, range(500), 0))
            each = (time.perf_counter() - began) / 500 * 1e3
            list(engine.each(asleep, range(engine.parallel), 0.2))
            began, tasks = time.perf_counter(), 20 * engine.parallel
            list(engine.each(asleep, range(tasks), 0.2))
            running = tasks * 0.2 / (time.perf_counter() - began)
            print(f"workers={workers}: an empty task {each:.1f} ms; {running:.2f} of {engine.parallel} tasks at a time")


def parity(folder: Path, dim: int = 20, rows: int = 200_000) -> None:
    """A log that fits into memory, by passes and in memory: the sample has every row, so the same units are chosen."""
    import onlooker
    from onlooker.reconstruction import by_passes
    from onlooker.reconstruction.options import Options
    from onlooker.workers import engine_for

    log = onlooker.open_log(made(folder, rows, dim))
    memory = onlooker.reconstruct(log.read())
    with engine_for(None) as engine:
        read = by_passes.by_passes(log, Options(1.0, 64, 0), engine)
    places = read.seen.points[::50]
    apart = read.potential.value(places) - memory.fitted.value(places)
    share = np.abs(apart - apart.mean()).max() / memory.fitted.value(places).std()
    print(f"N = {dim}, {rows:,} rows, by passes and in memory: |ΔR̂| is {share:.1g} of its spread at most", flush=True)


def interrupted(bench: Bench) -> None:
    """A call that is killed when half of its sums are kept, and made again."""
    kept = bench.folder / "kept"
    for file in kept.glob("*"):
        file.unlink()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}
    given = json.dumps([str(bench.log), {"checkpoint": str(kept)}, str(bench.folder / "places.npy"), "nowhere.npz"])
    running = subprocess.Popen([sys.executable, bench.folder / "call.py", given], env=environment, cwd=bench.folder)
    while running.poll() is None and len(list(kept.glob("*.sums"))) < 2:
        time.sleep(0.2)
    running.kill()
    running.wait()
    print(f"    killed with {len(list(kept.glob('*.sums')))} runs kept")
    bench.call("resumed", checkpoint=str(kept))


def from_store(bench: Bench) -> None:
    """The same log in an S3 server on this machine, which answers 503 twice."""
    from onlooker.storage.stores import as_place
    from tests.support.store import served

    with served() as store:
        for shard in sorted(bench.log.glob("*.parquet")):
            (as_place("s3://runs/log") / shard.name).write_bytes(shard.read_bytes())
        store.busy = 2
        bench.call("S3 server, 503 twice", source="s3://runs/log", checkpoint="s3://runs/kept")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=2e7)
    parser.add_argument("--dim", type=int, default=2)
    parser.add_argument("--before", type=Path, default=None)
    parser.add_argument("--folder", type=Path, default=Path("out/workers"))
    parser.add_argument("--only", default="memory,bits,faults,tasks,store,parity")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    folder, parts = given.folder.resolve(), given.only.split(",")
    bench = Bench(folder, made(folder, int(given.rows), given.dim), given.dim)
    if "memory" in parts:
        bench.call("one process")
        if given.before is not None:
            bench.call("before", checkout=given.before.resolve())
            bench.compared("one process", "before")
    if "bits" in parts:
        for workers in (2, "ray"):
            bench.call(f"workers {workers}", workers=workers)
    if "faults" in parts:
        interrupted(bench)
    if "store" in parts:
        from_store(bench)
    if "tasks" in parts:
        tasks()
    if "parity" in parts:
        parity(folder)
    seen = {row["bits"] for row in bench.rows if row["name"] != "before"}
    print(f"bits: {'all equal' if len(seen) <= 1 else 'DIFFERENT'}")
    for row in bench.rows:
        keep("workers", log=bench.log.name, **{name: value for name, value in row.items() if name != "codes"})


if __name__ == "__main__":
    main()
