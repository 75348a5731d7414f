"""What recording costs: microseconds per step, and the share of a loop of a millisecond.

Each loop is timed with and without the recorder, turn by turn, and the medians are compared.
"""

import statistics
import tempfile
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

import onlooker
from onlooker.observe.record.optax import Recorder
from onlooker.observe.record.torch import record

STEPS, TURNS = 2000, 9
SLOW = 1.2e-3


def _layers(parameters: int) -> list[int]:
    """A small network of about so many parameters."""
    return [10, (parameters - 1) // 12, 1] if parameters > 50 else [parameters - 1, 1]


def _torch_loop(parameters: int, wait: float) -> Callable[[str | None], float]:
    sizes = _layers(parameters)
    torch.manual_seed(0)
    parts = [torch.nn.Linear(one, other) for one, other in zip(sizes, sizes[1:], strict=False)]
    model = torch.nn.Sequential(*parts)
    inputs, steps = torch.randn(32, sizes[0]), STEPS if not wait else STEPS // 4

    def loop(folder: str | None) -> float:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        recording = None if folder is None else record(optimizer, folder, agent=0)
        began = time.perf_counter()
        for _ in range(steps):
            ends = time.perf_counter() + wait
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            while time.perf_counter() < ends:
                pass
        took = time.perf_counter() - began
        if recording is not None:
            began = time.perf_counter()
            recording.close()
            took += time.perf_counter() - began
        return took / steps

    return loop


def _optax_loop(parameters: int, wait: float) -> Callable[[str | None], float]:
    steps = STEPS if not wait else STEPS // 4

    def loop(folder: str | None) -> float:
        recorder = None if folder is None else Recorder(folder, agent=0)
        rule = optax.sgd(1e-4)
        optimiser = rule if recorder is None else optax.chain(recorder.transformation, rule)
        point = jnp.ones(parameters)
        state = optimiser.init(point)

        @jax.jit
        def step(point, state):
            updates, state = optimiser.update(jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2))(point), state, point)
            return optax.apply_updates(point, updates), state

        jax.block_until_ready(step(point, state))
        began = time.perf_counter()
        for number in range(steps):
            ends = time.perf_counter() + wait
            point, state = step(point, state)
            if recorder is not None and number % 16 == 15:
                recorder.collect(state)
            while time.perf_counter() < ends:
                pass
        jax.block_until_ready(point)
        if recorder is not None:
            recorder.close(state)
        return (time.perf_counter() - began) / steps

    return loop


def _plain_loop(parameters: int, wait: float) -> Callable[[str | None], float]:
    random = np.random.default_rng(0)
    noise = random.standard_normal((STEPS, parameters)).astype(np.float32)
    steps = STEPS if not wait else STEPS // 4

    def loop(folder: str | None) -> float:
        writer = None if folder is None else onlooker.LogWriter(folder)
        point = np.zeros(parameters, np.float32)
        began = time.perf_counter()
        for number in range(steps):
            ends = time.perf_counter() + wait
            gradient = noise[number] - point
            if writer is not None:
                writer.add(point, gradient, agent=0)
            point = point + np.float32(0.1) * gradient
            while time.perf_counter() < ends:
                pass
        if writer is not None:
            writer.close()
        return (time.perf_counter() - began) / steps

    return loop


def main() -> None:
    torch.set_num_threads(1)
    print("recorder   parameters   step, µs   recorded, µs   more, µs   loop of 1.2 ms: more, %")
    for name, make in (("torch", _torch_loop), ("optax", _optax_loop), ("plain", _plain_loop)):
        for parameters in (10, 100, 1000):
            found = []
            for wait in (0.0, SLOW):
                loop, times = make(parameters, wait), {True: [], False: []}
                for _ in range(TURNS):
                    for recorded in (False, True):
                        with tempfile.TemporaryDirectory() as folder:
                            times[recorded].append(loop(folder if recorded else None))
                found.append([statistics.median(times[recorded]) for recorded in (False, True)])
            (without, with_it), (slow, slow_with_it) = found
            print(
                f"{name:<10} {parameters:>10} {1e6 * without:>10.1f} {1e6 * with_it:>14.1f} "
                f"{1e6 * (with_it - without):>10.1f} {100 * (slow_with_it / slow - 1):>20.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
