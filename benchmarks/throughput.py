"""Million chain-steps per second of `passive`, compared with alternatives. Part of ``make bench``.

All see the same observations with the same Gaussian kernel, N = 2, on one shared stream, and count every position in a
40 × 40 histogram. Numba and NumPy run the update of `passive`; SGLD has unit noise, so BlackJAX gets the gradient that
matches it, weighted as in `reweighted`. Each is timed alone and compiled beforehand, and the best of a few runs
counts. Ratios carry over to other machines better than rates. Peers that are not installed are reported as left out.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.figures import keep
from onlooker.core.density import standard_normal
from onlooker.data.observations import Observations
from onlooker.data.stream import recorded
from onlooker.engine.accumulators import Grid, Marginals
from onlooker.engine.run import run
from onlooker.inverse import nonreversible, passive, reweighted

STEP, WIDTH, BINS, HALF = 5e-4, 0.1, 40, 3.0


def best(function, repeat=3):
    """Seconds of the fastest of several calls, after one that compiles."""
    function()
    seconds = []
    for _ in range(repeat):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def spread(dim):
    """The scale of the points: in many dimensions π is then near 1 at its centre, and not too small to compute."""
    return 1.0 if dim == 2 else 0.4


def observations(count, dim=2):
    points = np.random.default_rng(0).standard_normal((count, dim)).astype(np.float32) * np.float32(spread(dim))
    return Observations(points, -points)


def onlooker_rate(chains, dim=2, steps=None, learner=None, counting=True, **options):
    """Chain-steps per second, and normals per second."""
    steps = steps or max(4096, min(400_000, 2**28 // (chains * dim)))
    stream = recorded(observations(steps, dim))
    width = WIDTH if dim == 2 else 1.0
    learner = learner or passive(standard_normal(dim, spread(dim)), step_size=STEP, bandwidth=width)
    counted = (
        {}
        if not counting
        else {"grid": Grid.cube(HALF, 2, BINS)}
        if dim == 2
        else {"marginals": Marginals(-HALF, HALF, BINS)}
    )
    seconds = best(
        lambda: run(learner, stream, chains=chains, start=np.zeros(dim), progress=False, draws=16, **counted, **options)
    )
    return chains * steps / seconds, chains * steps * dim / seconds


def blackjax_rate(chains=256, steps=20_000):
    """BlackJAX's SGLD vmapped over chains, a key per chain, on the same kernel-weighted gradient."""
    import blackjax

    seen = observations(steps)
    points, gradients = jnp.asarray(seen.points), jnp.asarray(seen.gradients)

    def gradient(position, minibatch):
        # SGLD adds ε g + √(2ε) w; `reweighted`'s drift on the same observation, in its units.
        point, observed = minibatch
        squared = jnp.sum((point - position) ** 2)
        weight = jnp.exp(-0.5 * squared / WIDTH**2 + 0.5 * jnp.sum(position**2)) / WIDTH**2
        return weight * observed

    step = jax.vmap(blackjax.sgld(gradient).step, in_axes=(0, 0, None, None))
    low, scale = -HALF, BINS / (2 * HALF)

    @jax.jit
    def everything(key):
        def one(carry, minibatch):
            key, positions, counts = carry
            key, now = jax.random.split(key)
            positions = step(jax.random.split(now, chains), positions, minibatch, STEP / 2)
            bins = jnp.clip(((positions - low) * scale).astype(jnp.int32), 0, BINS - 1)
            return (key, positions, counts.at[bins[:, 0], bins[:, 1]].add(1)), None

        start = (key, jnp.zeros((chains, 2)), jnp.zeros((BINS, BINS), jnp.int32))
        return jax.lax.scan(one, start, (points, gradients))[0][2]

    return chains * steps / best(lambda: everything(jax.random.key(0)).block_until_ready())


def numba_rate(chains=256, steps=100_000):
    """A fused loop over chains in parallel, noise drawn and histogram counted in it."""
    import math

    import numba

    seen = observations(steps)
    mu, inverse = STEP, 1 / (2 * WIDTH**2)
    peak, root = 1 / (2 * math.pi * WIDTH**2), math.sqrt(STEP)

    @numba.njit(parallel=True, fastmath=True)
    def everything(points, gradients, chains):
        counts = np.zeros((chains, BINS, BINS), np.int64)
        for chain in numba.prange(chains):
            x, y = np.float32(0), np.float32(0)
            for k in range(len(points)):
                dx, dy = points[k, 0] - x, points[k, 1] - y
                weight = peak * math.exp(-(dx * dx + dy * dy) * inverse) / 2
                pi = math.exp(-(x * x + y * y) / 2) / (2 * math.pi)
                x += np.float32(mu * (weight * gradients[k, 0] - x * pi) * pi + root * pi * np.random.normal())
                y += np.float32(mu * (weight * gradients[k, 1] - y * pi) * pi + root * pi * np.random.normal())
                row = min(max(int((x + HALF) * (BINS / (2 * HALF))), 0), BINS - 1)
                column = min(max(int((y + HALF) * (BINS / (2 * HALF))), 0), BINS - 1)
                counts[chain, row, column] += 1
        return counts.sum(axis=0)

    return chains * steps / best(lambda: everything(seen.points, seen.gradients, chains))


def numpy_rate(steps=20_000):
    """One chain, one step at a time, as the paper's listing is written."""
    seen = observations(steps)

    def everything():
        generator = np.random.default_rng(0)
        alpha, counts = np.zeros(2), np.zeros((BINS, BINS), int)
        for theta, gradient in zip(seen.points, seen.gradients, strict=True):
            weight = np.exp(-((theta - alpha) ** 2).sum() / (2 * WIDTH**2)) / (2 * np.pi * WIDTH**2)
            pi = np.exp(-(alpha**2).sum() / 2) / (2 * np.pi)
            alpha = (
                alpha
                + STEP * (weight / 2 * gradient - alpha * pi) * pi
                + np.sqrt(STEP) * pi * generator.standard_normal(2)
            )
            row, column = np.clip(((alpha + HALF) * (BINS / (2 * HALF))).astype(int), 0, BINS - 1)
            counts[row, column] += 1
        return counts

    return steps / best(everything, repeat=2)


def peers():
    ours = onlooker_rate(256, thin=1)[0]
    keep("throughput", who="onlooker", rate=ours)
    print(f"passive, N = 2, one shared stream, histograms on, {jax.devices()[0].device_kind}")
    print(f"  {'onlooker, 256 chains':<34}{ours / 1e6:>9.1f} M chain-steps/s")
    thinned = onlooker_rate(256)[0]
    keep("throughput", who="onlooker, thin = 8", rate=thinned)
    print(f"  {'  (counting every 8-th, the default)':<34}{thinned / 1e6:>7.1f} M chain-steps/s")
    for name, expected, measure in (
        ("BlackJAX SGLD, 256 chains", 3, blackjax_rate),
        ("fused Numba loop, all cores", 2, numba_rate),
        ("NumPy loop, one chain", 500, numpy_rate),
    ):
        try:
            rate = measure()
        except ImportError as missing:
            print(f"  {name:<34}  left out: {missing}")
            continue
        keep("throughput", who=name, rate=rate, ratio=ours / rate)
        print(
            f"  {name:<34}{rate / 1e6:>9.3f} M chain-steps/s   onlooker is {ours / rate:.1f}× (expected ≥ {expected}×)"
        )


def scaling():
    print("\nchains × dimension: M chain-steps/s (M normals/s)")
    dims, counts = (2, 10, 124), (1, 16, 256, 4096)
    print(f"  {'chains':>8}" + "".join(f"{f'N = {dim}':>22}" for dim in dims))
    normals = {}
    for chains in counts:
        line = f"  {chains:>8}"
        for dim in dims:
            rate, normal = onlooker_rate(chains, dim)
            normals[chains, dim] = normal
            keep("chains and dimension", chains=chains, dim=dim, rate=rate, normals=normal)
            line += f"{rate / 1e6:>11.2f} ({normal / 1e6:>7.1f})"
        print(line)
    wide = [value for (chains, _), value in normals.items() if chains >= 256]
    print(
        f"  slowest point with 256 or more chains: {min(wide) / max(normals.values()):.2f} of the best (promised ≥ .5)"
    )


def cost_of_rotation():
    print("\nthe cost of S (the paper: an order of magnitude), ns per chain-step, 256 chains")
    for dim in (2, 10, 124):
        density = standard_normal(dim, spread(dim))
        options = {"step_size": 1e-5, "bandwidth": 0.2 if dim == 2 else 1.0}
        skew = np.triu(np.ones((dim, dim)), 1)
        plain = 1e9 / onlooker_rate(256, dim, learner=reweighted(density, **options))[0]
        turned = 1e9 / onlooker_rate(256, dim, learner=nonreversible(density, rotation=skew - skew.T, **options))[0]
        keep("rotation", dim=dim, ratio=turned / plain)
        print(f"  N = {dim:<4} reweighted {plain:>8.1f}   nonreversible {turned:>8.1f}   ratio {turned / plain:.2f}")


def main():
    peers()
    scaling()
    cost_of_rotation()


if __name__ == "__main__":
    main()
