"""Speed on an accelerator: `passive` on up to a million chains, fused and not; pools; `potential`.

    python -m benchmarks.gpu [--json FILE]

Picoseconds per chain-step and microseconds per step are those of the fastest of three compiled runs; "first" is the
first run, including compilation. Both loops take the same steps on the same noise, and the largest difference of their
samples is printed. On a CPU only small cases are run.
"""

import argparse
import json
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np

import onlooker
from benchmarks.pools import LARGE, shared_pools
from onlooker.core.density import standard_normal
from onlooker.data.observations import Observations
from onlooker.data.stream import recorded
from onlooker.engine import loop as engine
from onlooker.engine.run import run
from onlooker.inverse import passive

# Numbers of chains, and of steps that take about a second on an H200.
SIZES = {1 << 20: 1 << 17, 1 << 17: 1 << 19, 17_408: 1 << 20, 1024: 1 << 20}
STEP, WIDTH = 5e-4, 0.1
FEWER = 8


@contextmanager
def plain_loop():
    """Without the fused kernel."""
    fused, engine._can_be_fused = engine._can_be_fused, lambda *given: False
    yield
    engine._can_be_fused = fused


def chains_over(chains: int, steps: int, dim: int = 2):
    """Runs of `passive` over one recorded stream, and the seconds of the first."""
    points = np.random.default_rng(0).standard_normal((steps, dim)).astype(np.float32)
    stream = recorded(Observations(points, -points))
    learner = passive(standard_normal(dim), step_size=STEP, bandwidth=WIDTH)
    options = {"chains": chains, "thin": 64, "draws": 4, "start": np.zeros(dim), "progress": False}
    began = time.perf_counter()
    found = run(learner, stream, **options)
    first = time.perf_counter() - began
    return found, first, min(run(learner, stream, **options).seconds for _ in range(3))


def passive_rows() -> list[dict[str, float | str]]:
    rows: list[dict[str, float | str]] = []
    print(f"{'passive, N = 2':<24} {'chains':>9} {'steps':>9} {'ps/chain-step':>14} {'µs/step':>9} {'first, s':>9}")
    for chains, steps in SIZES.items():
        for name in ("fused", "plain"):
            few = steps if name == "fused" else steps // FEWER
            if name == "fused":
                _, first, best = chains_over(chains, few)
            else:
                with plain_loop():
                    _, first, best = chains_over(chains, few)
            row = {"loop": name, "chains": chains, "steps": few, "ps": best / few / chains * 1e12}
            rows.append({**row, "us": best / few * 1e6, "first": first})
            print(
                f"{name:<24} {chains:>9} {few:>9} {rows[-1]['ps']:>14.1f} {rows[-1]['us']:>9.2f} {first:>9.1f}",
                flush=True,
            )
    fused, _, _ = chains_over(1024, 1 << 14)
    with plain_loop():
        plain, _, _ = chains_over(1024, 1 << 14)
    apart = float(np.abs(fused.samples - plain.samples).max())
    print(f"samples of the two loops are at most {apart:.1e} apart (1024 chains, 16 384 steps)")
    return [*rows, {"loop": "both", "apart": apart}]


def potential_row(dim: int = 30, rows: int = 200_000) -> dict[str, float]:
    """A reward of a quadratic and ridges, in many dimensions."""
    random = np.random.default_rng(0)
    points = random.standard_normal((rows, dim))
    gradients = -points + 0.5 * np.cos(2 * points) + random.standard_normal(points.shape)
    found = onlooker.reconstruct(points, gradients).diagnostics
    print(f"potential, N = {dim}, {rows} rows: fit {found['fit_seconds']:.1f} s, draws {found['draw_seconds']:.1f} s")
    return {"dim": dim, "rows": rows, **{name: found[name] for name in ("fit_seconds", "draw_seconds", "rhat", "ess")}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore", onlooker.OnlookerWarning)
    device = jax.devices()[0].device_kind
    print(f"{device}, JAX {jax.__version__}")
    results = {"device": device, "jax": jax.__version__, "passive": passive_rows()}
    results["multikernel"] = shared_pools(LARGE)
    results["potential"] = potential_row()
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
