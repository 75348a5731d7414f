"""Judges of the evidence: each returns a figure, and whether the promise about it holds.

A time counts if no other job ran at the same time, or if it was short enough all the same.
"""

import json
from collections.abc import Callable
from typing import Any

from benchmarks.evidence import RESULTS, Evidence
from tests.support.mutation_list import MUTATIONS

SEEDS = (0, 1, 2)
PYTHONS = ("3.11", "3.12", "3.13")

# What a judge returns: the figure, and whether the promise holds; None if there is not enough evidence.
Verdict = tuple[str, bool | None]
MISSING: Verdict = ("—", None)


def rows(example: str) -> Callable[[Evidence], Verdict]:
    """Every row of an example is within its range, at every seed."""

    def judge(evidence: Evidence) -> Verdict:
        found = {seed: evidence.rows(f"{example}-{seed}") for seed in SEEDS}
        chosen = [row for some in found.values() for row in some]
        there = [str(seed) for seed, some in found.items() if some]
        if not chosen:
            return MISSING
        figure = f"{sum(row['within'] for row in chosen)} of {len(chosen)} rows within ({_seeds(there)})"
        return figure, _everywhere([row["within"] for row in chosen], len(there))

    return judge


def _seeds(there: list[str]) -> str:
    return f"seed{'s' * (len(there) > 1)} {', '.join(there)}"


def _everywhere(within: list[bool], there: int, wanted: int = len(SEEDS)) -> bool | None:
    """One failure breaks a promise; one seed (or Python version) is not enough to keep it."""
    return None if all(within) and there < wanted else all(within)


def measured(example: str, like: str, *metrics: str) -> Callable[[Evidence], Verdict]:
    """The numbers of some rows, and whether these are within."""

    def judge(evidence: Evidence) -> Verdict:
        found = {seed: evidence.rows(f"{example}-{seed}") for seed in SEEDS}
        chosen = [row for some in found.values() for row in some if row["name"].startswith(like)]
        there = [str(seed) for seed, some in found.items() if some]
        if not chosen:
            return MISSING
        shown = [f"{metric} {', '.join(f'{row[metric]:.3g}' for row in chosen)}" for metric in metrics]
        holds = _everywhere([row["within"] for row in chosen], len(there))
        return f"{'; '.join(shown)} ({_seeds(there)})", holds

    return judge


def in_time(limit: float, *jobs: str) -> Callable[[Evidence], Verdict]:
    """Every job is fast enough; the rows of a quick example are judged, too."""

    def judge(evidence: Evidence) -> Verdict:
        found = {job: evidence.jobs[job] for job in jobs if "seconds" in evidence.jobs.get(job, {})}
        if not found:
            return MISSING
        quick = [row["within"] for job in found if job.endswith("-quick") for row in evidence.rows(job)]
        rows_within = f", {sum(quick)} of {len(quick)} rows within" if quick else ""
        times, holds = _times([(one["seconds"], "shared" in one) for one in found.values()], limit)
        return times + rows_within, holds if all(quick) else False

    return judge


def _times(found: list[tuple[float, bool]], limit: float) -> Verdict:
    """Seconds, and whether the machine was shared: if it was, too long a time proves nothing."""
    shown = ", ".join(f"{seconds:.0f}{' beside other jobs' * shared}" for seconds, shared in found)
    telling = [seconds <= limit for seconds, shared in found if seconds <= limit or not shared]
    return f"{shown} s", all(telling) if telling else None


def on_other_machines(machine: str) -> Callable[[Evidence], Verdict]:
    """Every row of every example that was run on another machine."""

    def judge(evidence: Evidence) -> Verdict:
        found = [job for job in evidence.jobs if job.endswith(f"-{machine}")]
        within = [row["within"] for job in found for row in evidence.rows(job)]
        if not within:
            return MISSING
        names = ", ".join(job.removesuffix(f"-{machine}") for job in found)
        return f"{sum(within)} of {len(within)} rows within ({names})", all(within)

    return judge


def in_memory(limit: float, *jobs: str) -> Callable[[Evidence], Verdict]:
    def judge(evidence: Evidence) -> Verdict:
        found = [evidence.jobs[job]["gib"] for job in jobs if "gib" in evidence.jobs.get(job, {})]
        return (f"{', '.join(f'{one:.2f}' for one in found)} GiB", max(found) <= limit) if found else MISSING

    return judge


def example_2_in_time(limit: float, ours: bool) -> Callable[[Evidence], Verdict]:
    """Each of our own fits, or all rows of the paper together, at each seed."""

    def judge(evidence: Evidence) -> Verdict:
        found = []
        for job in full("logistic"):
            chosen = [row for row in evidence.rows(job) if row["name"].startswith("potential") == ours]
            seconds = [row.get("seconds", 0.0) for row in chosen]
            shared = "shared" in evidence.jobs.get(job, {})
            found += [(one, shared) for one in (seconds if ours else [sum(seconds)] if seconds else [])]
        return _times(found, limit) if found else MISSING

    return judge


def full(example: str) -> tuple[str, ...]:
    return tuple(f"{example}-{seed}" for seed in SEEDS)


def passed(suite: str, *names: str) -> Callable[[Evidence], Verdict]:
    """All tests whose file or name contains one of the words."""

    def judge(evidence: Evidence) -> Verdict:
        good, bad = (
            sum(count for test, count in evidence.tests(suite, outcome).items() if any(name in test for name in names))
            for outcome in ("passed", "failed")
        )
        return (f"{good} of {good + bad} pass", not bad) if good + bad else MISSING

    return judge


def bound(
    metric: str, limit: float, above: bool, what: str, unit: str = "", **like: Any
) -> Callable[[Evidence], Verdict]:
    """All figures of a benchmark are above a limit, or below it."""

    def judge(evidence: Evidence) -> Verdict:
        found = [one[metric] for one in evidence.figures(what, **like)]
        if not found:
            return MISSING
        holds = min(found) >= limit if above else max(found) <= limit
        return f"{', '.join(_number(one) for one in found)}{unit}", holds

    return judge


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def normals(evidence: Evidence) -> Verdict:
    found = evidence.figures("chains and dimension")
    if not found:
        return MISSING
    share = min(one["normals"] for one in found if one["chains"] >= 256) / max(one["normals"] for one in found)
    return f"{share:.2f} of the best", share >= 0.5


def picoseconds(evidence: Evidence) -> Verdict:
    row = next(one for one in evidence.gpu["passive"] if one.get("chains") == 1 << 20 and one["loop"] == "fused")
    return f"{row['ps']:.1f} ps", row["ps"] <= 16


def microseconds(evidence: Evidence) -> Verdict:
    row = next(one for one in evidence.gpu["passive"] if one.get("chains") == 17_408 and one["loop"] == "fused")
    return f"{row['us']:.2f} µs", row["us"] <= 0.7


def pools_on_gpu(evidence: Evidence) -> Verdict:
    row = evidence.gpu["multikernel"][0]
    alone, plain, whole = (f"{row[name]:.2f}" for name in ("alone_ms", "plain_ms", "ms"))
    return f"{alone} ms; plain products {plain}; with drawing and counting {whole}", row["alone_ms"] <= 1.1


def unseen(dimension: Callable[[int], bool]) -> Callable[[Evidence], Verdict]:
    def judge(evidence: Evidence) -> Verdict:
        found = [one for one in evidence.figures("unseen") if dimension(one["dim"])]
        if not found:
            return MISSING
        outside = [f"{one['target']} outside (rms {one['rms']:.2f})" for one in found if not one["within"]]
        return "; ".join([f"{len(found) - len(outside)} of {len(found)} within", *outside]), not outside

    return judge


def unbiased(evidence: Evidence) -> Verdict:
    found = {batches: evidence.figures("estimator", batches=batches) for batches in (1, 2)}
    if not found[1] or not found[2]:
        return MISSING
    two, one = ([each["off"] for each in found[batches]] for batches in (2, 1))
    return f"two batches {max(two):.1f} s.e. at the most, one batch up to {max(one):.0f}", max(two) <= 3 < max(one)


def mutations(evidence: Evidence) -> Verdict:
    file = RESULTS / "mutations.json"
    if not file.exists():
        return MISSING
    caught = {one["mutation"] for one in json.loads(file.read_text()) if one["caught_by"]}
    known = {one.name for one in MUTATIONS}
    return f"{len(known & caught)} of {len(known)} caught", known <= caught


def fresh(metric: str, limit: float) -> Callable[[Evidence], Verdict]:
    def judge(evidence: Evidence) -> Verdict:
        file = RESULTS / "fresh.json"
        found = [one for one in json.loads(file.read_text()) if metric in one] if file.exists() else []
        if not found:
            return MISSING
        shown = ", ".join(f"{one['python']}: {one[metric]:.0f} s" for one in found)
        wanted = 1 if metric == "test" else len(PYTHONS)
        return shown, _everywhere([one[metric] <= limit for one in found], len(found), wanted)

    return judge
