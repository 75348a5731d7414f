"""Alternatives to Onlooker: accuracy of R̂, seconds and memory of each.

    python -m benchmarks.alternatives [--quick]

Every run is its own process, so that its seconds (including compilation) and peak memory can be measured. *rms* is the
root mean square of R̂ − R over exact draws, without the free constant. *distance* is that between samples of exp(R̂) and
exp(R): joint total variation on 28 × 28 bins in two dimensions, W1 over 40 projections above. *floor* is the same
distance for exact draws.

* potential, replay: `onlooker.reconstruct`, no other options.
* gradient-GP: exact Gaussian-process regression on derivative observations, squared exponential, length chosen by the
  marginal likelihood; on a random subset that fits into a matrix of 4000².
* Nadaraya–Watson: kernel regression on a grid, then Poisson's equation; held-out rows choose the bandwidth.
* round-and-integrate: the paper's suggestion: gradients averaged in cells of a grid, summed along its axes.
* force inference: the StochasticForceInference package on the learners' paths (it uses steps, not gradients):
  polynomials of degree 7 in two dimensions and 3 above, integrated along rays.
* SGLD, true gradients: BlackJAX, with gradients at its own positions, which no other method has: an upper bound.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.ndimage import gaussian_filter
from scipy.sparse import diags, identity, kron, vstack
from scipy.sparse.linalg import lsqr

import onlooker
from benchmarks.figures import keep
from benchmarks.targets import MOST_DRAWS, TARGETS, Target
from benchmarks.unseen import joint_variation, projected_distance
from onlooker.data.observations import Observations
from onlooker.data.splits import held_out

Value = Callable[[np.ndarray], np.ndarray]
# Rows of the Gaussian process's matrix, and cells per axis of a grid.
LARGEST_MATRIX = 4000
CELLS = 64
SIZES = {
    2: (1_000, 10_000, 100_000, 1_000_000),
    5: (10_000, 200_000),
    10: (10_000, 200_000),
    30: (200_000,),
    124: (400_000,),
}
NAMES = {2: "three wells", 5: "mixture, 5-D", 10: "mixture, 10-D", 30: "logistic, 30-D", 124: "mixture, 124-D"}


def ours(method: str) -> Callable[[Target, Observations], tuple[Value | None, np.ndarray | None]]:
    def found(target: Target, seen: Observations) -> tuple[Value | None, np.ndarray | None]:
        result = onlooker.reconstruct(seen.points, seen.gradients, agents=seen.agents, times=seen.times, method=method)
        known = result.fitted.known
        return result.reward if known else None, result.samples.reshape(-1, target.dim)

    return found


def gradient_process(target: Target, seen: Observations) -> tuple[Value, None]:
    """k = exp(−‖x−y‖²/2ℓ²): cov(∂ᵢf(x), ∂ⱼf(y)) = (δᵢⱼ − dᵢdⱼ/ℓ²)k/ℓ², cov(f(x), ∂ⱼf(y)) = dⱼk/ℓ², d = x − y."""
    count = min(len(seen), LARGEST_MATRIX // target.dim)
    rows = np.random.default_rng(0).choice(len(seen), count, replace=False)
    centre, spread = seen.points.mean(axis=0), seen.points.std()
    points, slopes = (seen.points[rows] - centre) / spread, (seen.gradients[rows] * spread).astype(float)
    away = points[:, None] - points[None]
    squared = (away**2).sum(axis=-1)

    def covariance(length: float) -> np.ndarray:
        block = np.eye(target.dim) - away[..., :, None] * away[..., None, :] / length**2
        block *= (np.exp(-squared / (2 * length**2)) / length**2)[..., None, None]
        return block.transpose(0, 2, 1, 3).reshape(count * target.dim, -1)

    flat = slopes.reshape(-1)
    best = None
    for length in (0.3, 0.6, 1.0, 2.0, 4.0):
        shape = covariance(length)
        for share in (0.03, 0.1, 0.3, 1.0):
            # Amplitude in closed form; the noise is a share of the gradients' variance.
            matrix = shape / shape[0, 0] + share * np.eye(len(flat))
            factor = cho_factor(matrix)
            weights = cho_solve(factor, flat)
            evidence = -len(flat) * np.log(flat @ weights / len(flat)) - 2 * np.log(np.diag(factor[0])).sum()
            if best is None or evidence > best[0]:
                best = evidence, length, weights / shape[0, 0]
    assert best is not None
    _, length, weights = best

    def value(x: np.ndarray) -> np.ndarray:
        apart = (x - centre)[:, None] / spread - points[None]
        kernel = np.exp(-(apart**2).sum(axis=-1) / (2 * length**2)) / length**2
        return np.einsum("npi,np,pi->n", apart, kernel, weights.reshape(count, -1))

    return value, None


def _grid(seen: Observations) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Edges of the box, cells' counts and gradient sums."""
    low, high = np.quantile(seen.points, [0.0005, 0.9995], axis=0)
    edges = [np.linspace(a, b, CELLS + 1) for a, b in zip(low, high, strict=True)]
    counts = np.histogramdd(seen.points, edges)[0]
    sums = np.stack([np.histogramdd(seen.points, edges, weights=g)[0] for g in seen.gradients.T.astype(float)])
    return low, (high - low) / CELLS, counts, sums


def _on_grid(low: np.ndarray, width: np.ndarray, values: np.ndarray) -> tuple[Value, np.ndarray]:
    def value(x: np.ndarray) -> np.ndarray:
        cell = np.clip(((x - low) / width).astype(int), 0, CELLS - 1)
        inside = ((x >= low) & (x <= low + CELLS * width)).all(axis=1)
        return np.where(inside, values[tuple(cell.T)], np.nan)

    generator = np.random.default_rng(0)
    filled = np.where(np.isfinite(values), values, -np.inf)
    mass = np.cumsum(np.exp(filled - filled.max()))
    chosen = np.searchsorted(mass, generator.random(MOST_DRAWS // 2) * mass[-1])
    corner = np.stack(np.unravel_index(chosen, values.shape), axis=1)
    return value, low + (corner + generator.random(corner.shape)) * width


def nadaraya_watson(target: Target, seen: Observations) -> tuple[Value, np.ndarray]:
    held = held_out(seen)
    low, width, counts, sums = _grid(seen)
    parts = []
    for rows in (~held, held):
        some = Observations(seen.points[rows], seen.gradients[rows], None, None, 0, ())
        edges = [np.linspace(a, a + CELLS * w, CELLS + 1) for a, w in zip(low, width, strict=True)]
        count = np.histogramdd(some.points, edges)[0]
        parts.append((count, np.stack([np.histogramdd(some.points, edges, weights=g)[0] for g in some.gradients.T])))

    def field(count: np.ndarray, total: np.ndarray, sigma: float) -> np.ndarray:
        smooth = np.maximum(gaussian_filter(count, sigma, mode="constant"), 1e-12)
        return np.stack([gaussian_filter(part, sigma, mode="constant") for part in total]) / smooth

    (count, total), (out_count, out_total) = parts
    errors = {}
    for sigma in 0.5 * 2 ** np.arange(0, 5, 0.5):
        guess = field(count, total, sigma)
        errors[sigma] = float((out_count * guess**2 - 2 * guess * out_total).sum())
    guess = field(counts, sums, min(errors, key=lambda sigma: errors[sigma]))
    # Least squares of differences of R̂ against the field: the discrete Poisson equation, free at the boundary.
    difference = diags([-np.ones(CELLS - 1), np.ones(CELLS - 1)], [0, 1], shape=(CELLS - 1, CELLS))
    one = identity(CELLS)
    first, second = kron(difference, one), kron(one, difference)
    right = [
        ((guess[0][1:] + guess[0][:-1]) / 2 * width[0]).reshape(-1),
        ((guess[1][:, 1:] + guess[1][:, :-1]) / 2 * width[1]).reshape(-1),
    ]
    weight = [
        np.sqrt(np.minimum(counts[1:], counts[:-1]) + 0.1).reshape(-1),
        np.sqrt(np.minimum(counts[:, 1:], counts[:, :-1]) + 0.1).reshape(-1),
    ]
    matrix = vstack([diags(weight[0]) @ first, diags(weight[1]) @ second])
    solved = lsqr(matrix.tocsr(), np.concatenate([w * r for w, r in zip(weight, right, strict=True)]), iter_lim=4000)[0]
    values = np.where(gaussian_filter(counts, 1.0) > 0.1, solved.reshape(CELLS, CELLS), np.nan)
    return _on_grid(low, width, values)


def round_and_integrate(target: Target, seen: Observations) -> tuple[Value, np.ndarray]:
    """Averages in cells, summed along the first axis in the middle row, then along the second."""
    low, width, counts, sums = _grid(seen)
    mean = sums / np.maximum(counts, 1)
    middle = int(np.argmax(counts.sum(axis=0)))
    along = np.concatenate([[0], np.cumsum((mean[0][1:, middle] + mean[0][:-1, middle]) / 2 * width[0])])
    up = np.zeros((CELLS, CELLS))
    steps = (mean[1][:, 1:] + mean[1][:, :-1]) / 2 * width[1]
    up[:, 1:] = np.cumsum(steps, axis=1)
    values = along[:, None] + up - up[:, [middle]]
    return _on_grid(low, width, np.where(counts > 0, values, np.nan))


def force_inference(target: Target, seen: Observations) -> tuple[Value, np.ndarray | None]:
    """Forces as polynomials of the positions, from the learners' steps alone; R̂ is their integral along rays."""
    from SFI import OverdampedLangevinInference, TrajectoryCollection
    from SFI.bases import monomials_up_to

    assert seen.agents is not None
    horizon = int(np.argmax(seen.agents != seen.agents[0]))
    paths = seen.points.reshape(-1, horizon, target.dim)
    found = OverdampedLangevinInference(
        TrajectoryCollection.from_arrays(X=np.moveaxis(paths, 1, 0), dt=target.learning_rate)
    )
    found.compute_diffusion_constant()
    found.infer_force_linear(monomials_up_to(order=7 if target.dim == 2 else 3, dim=target.dim, rank="vector"))
    centre = seen.points.mean(axis=0)
    nodes, weights = np.polynomial.legendre.leggauss(32)

    def value(x: np.ndarray) -> np.ndarray:
        total = np.zeros(len(x))
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            force = np.asarray(found.force_inferred(jnp.asarray(centre + node * (x - centre), jnp.float32)))
            total += weight * np.einsum("ni,ni->n", force, x - centre)
        return total

    if target.dim != 2:
        return value, None
    low, width, counts, _ = _grid(seen)
    places = np.stack(np.meshgrid(*[np.arange(CELLS) + 0.5] * 2, indexing="ij"), axis=-1).reshape(-1, 2) * width + low
    values = np.where(counts > 0, value(places).reshape(CELLS, CELLS), np.nan)
    return value, _on_grid(low, width, values)[1]


def true_gradients(target: Target, seen: Observations) -> tuple[None, np.ndarray]:
    """The same number of gradients as was observed, with the same noise, at the chains' own positions."""
    import blackjax

    chains = 64
    steps = max(200, min(len(seen) // chains, 20_000))

    def estimate(position: jax.Array, noise: jax.Array) -> jax.Array:
        return jax.grad(target.reward)(position) + target.noise * noise

    learner = blackjax.sgld(estimate)
    step_size = 0.2 * float(np.min(target.draw(2000).var(axis=0)))

    def step(position: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        keys = jax.random.split(key, 2 * chains)
        noise = jax.vmap(lambda one: jax.random.normal(one, (target.dim,)))(keys[:chains])
        # BlackJAX steps by ε∇ + √(2ε): half of the variance there is a sensible step for the narrowest coordinate.
        position = jax.vmap(lambda one, at, z: learner.step(one, at, z, step_size / 4))(keys[chains:], position, noise)
        return position, position

    start = jnp.asarray(seen.points[np.random.default_rng(0).integers(0, len(seen), chains)], jnp.float32)
    _, kept = jax.lax.scan(step, start, jax.random.split(jax.random.key(0), steps))
    kept = np.asarray(kept[steps // 5 :]).reshape(-1, target.dim)
    return None, kept[:: max(1, len(kept) // MOST_DRAWS)]


METHODS = {
    "potential": (ours("potential"), None),
    "replay": (ours("replay"), 2),
    "gradient-GP": (gradient_process, None),
    "Nadaraya–Watson": (nadaraya_watson, 2),
    "round-and-integrate": (round_and_integrate, 2),
    "force inference": (force_inference, 10),
    "SGLD, true gradients": (true_gradients, None),
}


def one(method: str, name: str, count: int) -> dict[str, float | None]:
    target = TARGETS[name]
    seen = target.watch(count, seed=7)
    exact = target.draw(MOST_DRAWS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value, samples = METHODS[method][0](target, seen)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found: dict[str, float | None] = {"seconds": seconds, "megabytes": (peak - before) / 1024, "rms": None, "nan": None}
    if value is not None:
        difference = value(exact[:3000]) - target.value(exact[:3000])
        found |= {"rms": float(np.nanstd(difference)), "nan": float(np.isnan(difference).mean())}
    measure = joint_variation if target.dim == 2 else projected_distance
    half = len(exact) // 2
    found["floor"] = measure(exact[half:], exact[:half])
    found["distance"] = None if samples is None else measure(samples[: len(exact)], exact)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="up to ten dimensions and 2e5 observations")
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "TARGET", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one[0], options.one[1], int(options.one[2]))))
        return
    columns = f"{'rms':>6} {'nan':>5} {'distance':>8} {'floor':>6} {'s':>6} {'MB':>6}"
    print(f"{'N':>3} {'observations':>12} {'method':21} {columns}")
    for dim, sizes in SIZES.items():
        for count in sizes:
            if options.quick and (dim > 10 or count > 200_000):
                continue
            for method, (_, largest) in METHODS.items():
                if largest is not None and dim > largest:
                    continue
                command = [sys.executable, __file__, "--one", method, NAMES[dim], str(count)]
                done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
                if done.returncode:
                    print(f"{dim:3d} {count:12d} {method:21} failed: {done.stderr.strip().splitlines()[-1][:80]}")
                    continue
                found = json.loads(done.stdout.strip().splitlines()[-1])
                keep("alternatives", dim=dim, observations=count, method=method, **found)
                shown = {key: "     —" if v is None else f"{v:6.3f}" for key, v in found.items()}
                print(
                    f"{dim:3d} {count:12d} {method:21} {shown['rms']} {shown['nan'][1:]} {shown['distance']:>8} "
                    f"{shown['floor']} {found['seconds']:6.1f} {found['megabytes']:6.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
