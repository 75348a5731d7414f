"""Runs all benchmarks, and writes benchmarks/results/report.json and, from it, docs/benchmarks.md.

    python -m benchmarks.report                       # ``make bench``: all of them, most of an hour on two cores
    python -m benchmarks.report --only throughput     # runs one part again, keeps the others
    python -m benchmarks.report --write               # writes only the page, from the JSON

The figures of a GPU come from ``python -m benchmarks.gpu --json benchmarks/results/h200.json`` on such a machine.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
REPORT, GPU = RESULTS / "report.json", RESULTS / "h200.json"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Part:
    """A benchmark: its heading, a description, and the words after ``python -m benchmarks.``."""

    title: str
    about: str
    command: str


PARTS = {
    "throughput": Part(
        "Chains against BlackJAX, Numba and NumPy; chains and dimension",
        "The peers see the same observations with the same kernel, and count every position. "
        "[Speed](speed.md) explains the figures.",
        "throughput",
    ),
    "scaling": Part(
        "Cold start, compilation, memory; observations, dimension, pool size",
        "Each row is its own process. *First* includes compilation, *again* does not.",
        "scaling",
    ),
    "pools": Part(
        "Pools in 124 dimensions",
        "The loop of the paper's listing, one chain, and chains that share a pool.",
        "pools",
    ),
    "unseen": Part(
        "Rewards it was not tuned on",
        "`reconstruct(points, gradients)` without options; [comparison](comparison.md) explains the columns.",
        "unseen",
    ),
    "alternatives": Part(
        "Alternatives", "The same observations; a dash means that a method has no such result.", "alternatives --quick"
    ),
    "policies": Part(
        "Policy gradients", "Estimators, coordinates, agents that get stuck, the listing's loop.", "policies"
    ),
    "tracking": Part(
        "Rewards that jump",
        "Cost, delays against false alarms, memory over 1e7 observations.",
        "tracking --only cost delays memory",
    ),
    "logs": Part("Logs of ten million observations", "Written, read, inspected, reconstructed, learnt live.", "logs"),
    "recorders": Part("Recorders", "What recording adds to a training step.", "recorders"),
    "page": Part("The live page", "In a Chromium that shares the two cores.", "page"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run; default: all")
    parser.add_argument("--write", action="store_true", help="run nothing, write only the page")
    given = parser.parse_args()
    report = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    for name in [] if given.write else given.only:
        print(f"\n== {PARTS[name].title}: python -m benchmarks.{PARTS[name].command}", flush=True)
        report[name] = measured(PARTS[name])
        # Saved after every part, in case a later one fails.
        REPORT.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(report, json.loads(GPU.read_text())))
    print(f"\n{REPORT.name} and {PAGE.name} are written")


def measured(part: Part) -> dict[str, Any]:
    """Run a benchmark, show its output, and return it with its figures."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures"
        environment = {**os.environ, "ONLOOKER_FIGURES": str(figures), "PYTHONUNBUFFERED": "1"}
        began = time.perf_counter()
        command = [sys.executable, "-m", *f"benchmarks.{part.command}".split()]
        running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert running.stdout is not None
        printed = []
        for line in running.stdout:
            print(line, end="", flush=True)
            printed.append(line.rstrip())
        if running.wait():
            raise SystemExit(f"python -m benchmarks.{part.command} ended with {running.returncode}")
        lines = figures.read_text().splitlines() if figures.exists() else []
    return {
        "command": f"python -m benchmarks.{part.command}",
        "machine": machine(),
        "seconds": round(time.perf_counter() - began, 1),
        "printed": "\n".join(printed).strip("\n"),
        "figures": [json.loads(line) for line in lines],
    }


def machine() -> str:
    with open("/proc/cpuinfo") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    processor = names[0] if names else platform.processor()
    return f"{os.cpu_count()} cores ({processor}), Python {platform.python_version()}, JAX {version('jax')}"


def page(report: dict[str, Any], gpu: dict[str, Any]) -> str:
    machines = {one["machine"] for one in report.values()}
    lines = [
        "# Benchmarks",
        "",
        "`make bench` measures all of this and writes this page from benchmarks/results/report.json. Times are for "
        + " and for ".join(sorted(machines))
        + "; ratios carry over to other machines better than times. [Promises](promises.md) compares the figures with "
        "what was promised.",
    ]
    for name, part in PARTS.items():
        if name in report:
            found = report[name]
            lines += ["", f"## {part.title}", "", f"{part.about} `{found['command']}`, {found['seconds']:.0f} s."]
            lines += ["", "```text", found["printed"], "```"]
    return "\n".join([*lines, "", *on_gpu(gpu)]) + "\n"


def on_gpu(gpu: dict[str, Any]) -> list[str]:
    loops = {(row["chains"], row["loop"]): row for row in gpu["passive"] if "chains" in row}
    lines = [
        f"## On an accelerator: {gpu['device']}",
        "",
        f"`python -m benchmarks.gpu`, JAX {gpu['jax']}: complete calls of `run`; *first* is the first of them, "
        "including compilation.",
        "",
        "| `passive`, N = 2, chains | ps per chain-step | plain loop | µs per step | plain loop | first, s |",
        "|---|---|---|---|---|---|",
    ]
    for chains in sorted({chains for chains, _ in loops}, reverse=True):
        fused, plain = loops[chains, "fused"], loops[chains, "plain"]
        lines.append(
            f"| {chains:,} | {fused['ps']:.1f} | {plain['ps']:.1f} | {fused['us']:.2f} | {plain['us']:.2f} "
            f"| {fused['first']:.1f} |"
        )
    lines += ["", "| `multikernel`, N = 124, chains | pool | ms per step | step alone | plain products | TFLOP/s |"]
    lines += [
        "|---|---|---|---|---|---|",
        *(
            f"| {row['chains']} | {row['pool']:,} | {row['ms']:.3f} | {row['alone_ms']:.3f} | {row['plain_ms']:.3f} "
            f"| {row['tflops']:.1f} |"
            for row in gpu["multikernel"]
        ),
    ]
    fit = gpu["potential"]
    apart = next(row["apart"] for row in gpu["passive"] if "apart" in row)
    return [
        *lines,
        "",
        f"`reconstruct` in {fit['dim']} dimensions, {fit['rows']:,} rows, first call: fit {fit['fit_seconds']:.1f} s, "
        f"samples {fit['draw_seconds']:.1f} s. The two loops' samples are at most {apart:.1e} apart.",
    ]


if __name__ == "__main__":
    main()
