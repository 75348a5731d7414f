"""The cost of recording: microseconds per step, and their share of a loop that also works for a millisecond.

Each loop is timed with and without the recorder, in alternation, and the fastest repetitions are compared: the others
are slowed down by other work of the machine. Every repetition with the largest network writes at least one shard; with
smaller networks shards are so rare that the fastest repetition has none. A recording stays open over all repetitions:
opening and closing it, and writing the first shard, which imports libraries, takes some tenths of a second, once.
"""

import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

import onlooker
from benchmarks.figures import keep
from onlooker.data.record.optax import Recorder
from onlooker.data.record.torch import record

STEPS, TURNS = 3200, 9
SLOW = 1e-3

Loop = tuple[Callable[[int], None], Callable[[], None]]
Make = Callable[[int, float, str | None], Loop]


def _busy(seconds: float) -> None:
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        pass


def _layers(parameters: int) -> list[int]:
    """A small network with about this number of parameters."""
    return [10, (parameters - 1) // 12, 1] if parameters > 50 else [parameters - 1, 1]


def _shared_loop(parameters: int, wait: float, folder: str | None) -> Loop:
    return _torch_loop(parameters, wait, folder, shared=True)


def _torch_loop(parameters: int, wait: float, folder: str | None, shared: bool = False) -> Loop:
    sizes = _layers(parameters)
    torch.manual_seed(0)
    parts = [torch.nn.Linear(one, other) for one, other in itertools.pairwise(sizes)]
    model = torch.nn.Sequential(*parts)
    inputs = torch.randn(32, sizes[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    log = None if folder is None else onlooker.LogWriter(folder) if shared else folder
    recording = None if log is None else record(optimizer, log, agent=0)

    def loop(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            _busy(wait)

    return loop, lambda: None if recording is None else recording.close()


def _optax_loop(parameters: int, wait: float, folder: str | None) -> Loop:
    recorder = None if folder is None else Recorder(folder, agent=0)
    rule = optax.sgd(1e-4)
    optimizer = rule if recorder is None else optax.chain(recorder.transformation, rule)
    point = jnp.ones(parameters)
    state = optimizer.init(point)

    @jax.jit
    def step(point, state):
        updates, state = optimizer.update(jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2))(point), state, point)
        return optax.apply_updates(point, updates), state

    def loop(steps: int) -> None:
        nonlocal point, state
        for number in range(steps):
            point, state = step(point, state)
            if recorder is not None and number % 16 == 15:
                recorder.collect(state)
            _busy(wait)
        jax.block_until_ready(point)

    return loop, lambda: None if recorder is None else recorder.close(state)


def _plain_loop(parameters: int, wait: float, folder: str | None) -> Loop:
    noise = np.random.default_rng(0).standard_normal((100, parameters)).astype(np.float32)
    writer = None if folder is None else onlooker.LogWriter(folder)
    point = np.zeros(parameters, np.float32)

    def loop(steps: int) -> None:
        nonlocal point
        for number in range(steps):
            gradient = noise[number % 100] - point
            if writer is not None:
                writer.add(point, gradient, agent=0)
            point = point + np.float32(0.1) * gradient
            _busy(wait)

    return loop, lambda: None if writer is None else writer.close()


def _seconds(make: Make, parameters: int, wait: float) -> tuple[float, float]:
    """Seconds per step, without and with the recorder."""
    steps, turns = (STEPS, TURNS) if not wait else (STEPS // 2, TURNS // 2)
    with tempfile.TemporaryDirectory() as folder:
        loops = [make(parameters, wait, place) for place in (None, folder)]
        times: list[list[float]] = [[], []]
        for _ in range(turns):
            for (loop, _), found in zip(loops, times, strict=True):
                began = time.perf_counter()
                loop(steps)
                found.append((time.perf_counter() - began) / steps)
        for _, close in loops:
            close()
    without, with_it = map(min, times)
    return without, with_it


IMPORT = """
import sys
for name in ("jax", "jaxlib", "scipy", "numpyro", "optax", "matplotlib", "xarray", "zarr", "typer", "rich", "pooch"):
    sys.modules[name] = None  # as if it were not installed
import time, numpy, pyarrow, pyarrow.parquet, pyarrow.csv, torch
before, began = len(sys.modules), time.perf_counter()
import onlooker.data.record.torch
print(1e3 * (time.perf_counter() - began), len(sys.modules) - before)
"""


def light() -> None:
    """What recording needs beside torch, NumPy and PyArrow: `pip install --no-deps onlooker`."""
    done = subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True)
    milliseconds, modules = done.stdout.split()
    files = list(Path(onlooker.__file__).parent.rglob("*.py"))
    size = sum(file.stat().st_size for file in files) / 1e6
    keep("recorder's import", ms=float(milliseconds), modules=float(modules), package_mb=size)
    print(
        f"without the other dependencies: imported in {float(milliseconds):.0f} ms, {modules} modules; the package has "
        f"{size:.1f} MB of sources"
    )


def main() -> None:
    light()
    torch.set_num_threads(1)
    print("recorder   parameters   step, µs   recorded, µs   more, µs   loop of 1 ms and the step: more, %")
    for name, make in (
        ("torch", _torch_loop),
        ("shared", _shared_loop),
        ("optax", _optax_loop),
        ("plain", _plain_loop),
    ):
        for parameters in (10, 100, 1000):
            (without, with_it), (slow, slow_with_it) = (_seconds(make, parameters, wait) for wait in (0.0, SLOW))
            more, share = 1e6 * (with_it - without), 100 * (slow_with_it / slow - 1)
            keep("recorder", who=name, parameters=parameters, more_us=more, percent_of_1_ms=share)
            print(
                f"{name:<10} {parameters:>10} {1e6 * without:>10.1f} {1e6 * with_it:>14.1f} "
                f"{more:>10.1f} {share:>20.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
