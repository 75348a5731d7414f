"""The cost of a step in Example 2's loops and on large shared pools, relative to the paper's listing in NumPy.

    python -m benchmarks.pools                  # one chain on a9a's reward, then shared pools, on this CPU
    python -m benchmarks.pools --accelerator    # 1024 chains on one pool of 65 536 in 124 dimensions

Rates are those of the second of two runs, which is compiled. Shared pools have three: of `run` as a whole, with the
drawing of pools and the counting; of the learner's step alone, on one pool; and, for scale, of two matrix products with
a softmax between them. The data have a9a's shape and random content, which does not affect the speed.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from benchmarks.figures import keep
from onlooker import run
from onlooker.core.density import standard_normal
from onlooker.data.observations import Observation
from onlooker.inverse import active, classical, multikernel
from onlooker.inverse.base import InverseLearner
from onlooker.paper.listing import listing_multikernel, listing_reset
from onlooker.paper.listing_arithmetic import steps_until_nan
from onlooker.simulation.agents import independent_pools, questions
from onlooker.simulation.logistic import Logistic
from onlooker.simulation.nearest_pools import nearest_of_pools

Step = Callable[[Array, Observation], Array]

DIM, POOL = 124, 100
# For an accelerator: chains, observations of a pool, steps.
LARGE = [(1024, 65_536, 1000), (1024, 1024, 4000), (64, 65_536, 1000)]
LISTING = {"step_size": 2.5e-4, "bandwidth": 0.1**0.5, "reset": listing_reset(DIM)}


def rows_like_a9a() -> Logistic:
    generator = np.random.default_rng(0)
    features = (generator.random((32_561, DIM - 1)) < 14 / (DIM - 1)).astype(np.float32)
    return Logistic(features, np.sign(generator.standard_normal(len(features))), order="cyclic")


def listing_in_numpy(reward: Logistic, steps: int) -> float:
    """Seconds per step of the listing's loop in its own arithmetic."""
    began = time.perf_counter()
    lasted, _ = steps_until_nan(reward, 0, steps)
    return (time.perf_counter() - began) / lasted


def seconds_per_step(learner, stream, steps: int, chains: int = 1, thin: int = 8) -> float:
    options = {"steps": steps, "chains": chains, "thin": thin, "draws": 16, "progress": False}
    run(learner, stream, **options)
    return run(learner, stream, **options).seconds / steps


def one_chain() -> None:
    reward, density = rows_like_a9a(), standard_normal(DIM)
    numpy = listing_in_numpy(reward, 3000)
    print("one chain, N = 124, L = 100                     µs a step    steps/s   × NumPy")
    rows = {
        "the listing's loop in NumPy": numpy,
        "multikernel, every pool drawn": seconds_per_step(
            listing_multikernel(**LISTING), independent_pools(reward, density, POOL, shared=True), 40_000
        ),
        "multikernel, nearest 4 of the pool (shortcut)": seconds_per_step(
            listing_multikernel(**LISTING), nearest_of_pools(reward, POOL), 200_000
        ),
        "classical": seconds_per_step(classical(step_size=1e-2), questions(reward), 2_000_000),
        "active": seconds_per_step(active(step_size=1e-2, spread=0.1), questions(reward), 1_000_000),
    }
    for name, seconds in rows.items():
        keep("one chain, 124 dimensions", who=name, us=seconds * 1e6, numpy_ratio=numpy / seconds)
        print(f"{name:46s} {seconds * 1e6:10.2f} {1 / seconds:10.0f} {numpy / seconds:9.1f}")


def shared_pools(cases: list[tuple[int, int, int]]) -> list[dict[str, float]]:
    """Print and return the cost of a step, for each number of chains, pool size and number of steps."""
    found = []
    reward = rows_like_a9a()
    learner = multikernel(step_size=1e-3, bandwidth=1.0)
    print("\nchains on one pool   L in 124 dimensions   ms a step   step alone   plain products   TFLOP/s of products")
    for chains, size, steps in cases:
        stream = independent_pools(reward, standard_normal(DIM), size, shared=True)
        seconds = seconds_per_step(learner, stream, steps, chains, thin=1)
        row = {"chains": chains, "pool": size, "ms": seconds * 1e3, "tflops": 4 * chains * size * DIM / seconds / 1e12}
        row["alone_ms"], row["plain_ms"] = (
            1e3 * seconds_of(step, chains, size, max(1, steps // 4)) for step in (_steps_of(learner), _plain_products)
        )
        found.append(row)
        keep("shared pool", **row)
        print(
            f"{chains:18d} {size:21d} {row['ms']:11.3f} {row['alone_ms']:12.3f} {row['plain_ms']:16.3f} "
            f"{row['tflops']:21.3f}"
        )
    return found


def _steps_of(learner: InverseLearner) -> Step:
    def step(positions: Array, pool: Observation) -> Array:
        noise = jnp.zeros((1, *positions.shape))
        moved, info = jax.vmap(learner.step, in_axes=(-1, None, -1), out_axes=-1)(positions, pool, noise)
        # The step's info is computed as well.
        return moved + 1e-20 * sum(info)

    return step


def _plain_products(positions: Array, pool: Observation) -> Array:
    weights = jax.nn.softmax(jnp.matmul(pool.point, positions, precision="highest"), axis=0)
    return positions + 1e-3 * jnp.matmul(pool.gradient.T, weights, precision="highest")


def seconds_of(step: Step, chains: int, size: int, steps: int) -> float:
    """Seconds per step, over many steps on one pool."""
    generator = np.random.default_rng(0)
    points = jnp.asarray(generator.standard_normal((size, DIM), dtype=np.float32))
    pool, start = Observation(points, -points), jnp.zeros((DIM, chains))

    @jax.jit
    def loop(start: Array, pool: Observation) -> Array:
        # The barrier keeps XLA from moving what depends on the pool alone out of the loop.
        return lax.fori_loop(0, steps, lambda _, now: step(*lax.optimization_barrier((now, pool))), start)

    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        jax.block_until_ready(loop(start, pool))
        seconds.append(time.perf_counter() - began)
    return seconds[-1] / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accelerator", action="store_true", help="large shared pools only")
    warnings.simplefilter("ignore")
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}\n")
    if parser.parse_args().accelerator:
        shared_pools(LARGE)
    else:
        one_chain()
        shared_pools([(1, 100, 20_000), (64, 100, 5000), (64, 4096, 200), (1024, 4096, 50)])


if __name__ == "__main__":
    main()
