"""What was measured, and judges of it: each hands back a figure, and whether a promise about it holds.

Evidence is of four kinds: rows of ``onlooker reproduce`` (full at three seeds, and quick), figures of ``make bench``
(benchmarks/results/report.json), results of the tests (JUnit files), and fresh clones (benchmarks/fresh.py). Rows, test
results and timings lie in out/promises, where a folder that is deleted is made anew. A time is judged only if the job
had the machine to itself: a file named ``shared`` in its folder says that it had not.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.mutation_list import MUTATIONS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
EVIDENCE = ROOT / "out" / "promises"
SEEDS = (0, 1, 2)
PYTHONS = ("3.11", "3.12", "3.13")
SUITES = ("tests", "slow", "browser")

# What a judge hands back: the figure, and whether the promise holds; None where there is no evidence, or not enough.
Verdict = tuple[str, bool | None]
MISSING: Verdict = ("—", None)


class Evidence:
    """All that was measured."""

    def __init__(self) -> None:
        report = RESULTS / "report.json"
        parts = json.loads(report.read_text()) if report.exists() else {}
        self.kept = [figure for part in parts.values() for figure in part["figures"]]
        self.gpu = json.loads((RESULTS / "h200.json").read_text())
        self.rows = {folder.name: _rows(folder) for folder in sorted(EVIDENCE.glob("*-*")) if _rows(folder)}
        self.tests = {name: _outcomes(EVIDENCE / f"{name}.xml") for name in SUITES}

    def figures(self, what: str, **like: Any) -> list[dict[str, Any]]:
        found = [one for one in self.kept if one["what"] == what]
        return [one for one in found if all(one.get(name) == value for name, value in like.items())]

    def seconds(self, job: str) -> float | None:
        file = EVIDENCE / job / "seconds"
        return float(file.read_text()) if file.exists() and not (EVIDENCE / job / "shared").exists() else None


def _rows(folder: Path) -> list[dict[str, Any]]:
    file = folder / "metrics.json"
    return json.loads(file.read_text())["rows"] if file.exists() else []


def _outcomes(file: Path) -> dict[str, bool]:
    """Whether each test passed, by its file and name; those that were skipped are left out."""
    if not file.exists():
        return {}
    return {
        f"{case.get('classname', '').split('.')[-1]}::{case.get('name')}": case.find("failure") is None
        and case.find("error") is None
        for case in ElementTree.parse(file).iter("testcase")
        if case.find("skipped") is None
    }


# --- judges


def rows(example: str, like: str = "", seeds: tuple[int, ...] = SEEDS) -> Callable[[Evidence], Verdict]:
    """Every row of an example within its range, at every seed."""

    def judge(evidence: Evidence) -> Verdict:
        found = {seed: evidence.rows.get(f"{example}-{seed}", []) for seed in seeds}
        chosen = [row for some in found.values() for row in some if like in row["name"]]
        there = [str(seed) for seed, some in found.items() if some]
        if not chosen:
            return MISSING
        figure = f"{sum(row['within'] for row in chosen)} of {len(chosen)} rows within ({_seeds(there)})"
        return figure, _everywhere([row["within"] for row in chosen], len(there), len(seeds))

    return judge


def _seeds(there: list[str]) -> str:
    return f"seed{'s' * (len(there) > 1)} {', '.join(there)}"


def _everywhere(within: list[bool], there: int, wanted: int = len(SEEDS)) -> bool | None:
    """One failure is enough to break a promise, one seed (or Python) not enough to keep it."""
    return None if all(within) and there < wanted else all(within)


def measured(example: str, like: str, *metrics: str) -> Callable[[Evidence], Verdict]:
    """The numbers of some rows, and whether these are within."""

    def judge(evidence: Evidence) -> Verdict:
        found = {seed: evidence.rows.get(f"{example}-{seed}", []) for seed in SEEDS}
        chosen = [row for some in found.values() for row in some if row["name"].startswith(like)]
        there = [str(seed) for seed, some in found.items() if some]
        if not chosen:
            return MISSING
        shown = [f"{metric} {', '.join(f'{row[metric]:.3g}' for row in chosen)}" for metric in metrics]
        holds = _everywhere([row["within"] for row in chosen], len(there))
        return f"{'; '.join(shown)} ({_seeds(there)})", holds

    return judge


def in_time(limit: float, *jobs: str) -> Callable[[Evidence], Verdict]:
    """Every job that had the machine to itself, and was not cut short; of a quick example its rows are judged, too."""

    def judge(evidence: Evidence) -> Verdict:
        found = {job: taken for job in jobs if (taken := evidence.seconds(job)) is not None}
        if not found:
            return MISSING
        quick = [row["within"] for job in found if job.endswith("-quick") for row in evidence.rows.get(job, [])]
        rows_within = f", {sum(quick)} of {len(quick)} rows within" if quick else ""
        times = ", ".join(f"{one:.0f}" for one in found.values())
        return f"{times} s{rows_within}", max(found.values()) <= limit and all(quick)

    return judge


def in_memory(limit: float, *jobs: str) -> Callable[[Evidence], Verdict]:
    def judge(evidence: Evidence) -> Verdict:
        found = [float(file.read_text()) for job in jobs if (file := EVIDENCE / job / "gib").exists()]
        return (f"{', '.join(f'{one:.2f}' for one in found)} GiB", max(found) <= limit) if found else MISSING

    return judge


def _row_seconds(evidence: Evidence, ours: bool) -> list[list[float]]:
    """Of Example 2, by seed: seconds of the rows by our own methods, or of the paper's."""
    jobs = [job for job in full("logistic") if not (EVIDENCE / job / "shared").exists()]
    return [
        [row.get("seconds") or 0.0 for row in evidence.rows.get(job, []) if row["name"].startswith("potential") == ours]
        for job in jobs
    ]


def example_2_in_time(limit: float, ours: bool) -> Callable[[Evidence], Verdict]:
    """Each fit of our own, or all rows of the paper together, at each seed."""

    def judge(evidence: Evidence) -> Verdict:
        seeds = _row_seconds(evidence, ours)
        found = [one for some in seeds for one in some] if ours else [sum(some) for some in seeds if some]
        return (f"{', '.join(f'{one:.0f}' for one in found)} s", max(found) <= limit) if found else MISSING

    return judge


def full(example: str) -> tuple[str, ...]:
    return tuple(f"{example}-{seed}" for seed in SEEDS)


def passed(suite: str, *names: str) -> Callable[[Evidence], Verdict]:
    """All tests whose file or name has one of some words."""

    def judge(evidence: Evidence) -> Verdict:
        chosen = [good for test, good in evidence.tests[suite].items() if any(name in test for name in names or ("",))]
        return (f"{sum(chosen)} of {len(chosen)} pass", all(chosen)) if chosen else MISSING

    return judge


def bound(
    metric: str, limit: float, above: bool, what: str, unit: str = "", **like: Any
) -> Callable[[Evidence], Verdict]:
    """A benchmark's figures, all of them above a limit, or below it."""

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
    return f"{row['ms']:.2f} ms", row["ms"] <= 1.1


def unseen(dimension: Callable[[int], bool]) -> Callable[[Evidence], Verdict]:
    def judge(evidence: Evidence) -> Verdict:
        found = [one for one in evidence.figures("unseen") if dimension(one["dim"])]
        if not found:
            return MISSING
        outside = [f"{one['target']} outside (rms {one['rms']:.2f})" for one in found if not one["within"]]
        return "; ".join([f"{len(found) - len(outside)} of {len(found)} within", *outside]), not outside

    return judge


def memory_of_1e7(evidence: Evidence) -> Verdict:
    found = evidence.figures("live memory")
    if not found:
        return MISSING
    shown = "; ".join(f"{one['forgetting']}: {one['first_mib']:.0f} → {one['last_mib']:.0f} MiB" for one in found)
    return shown, all(one["last_mib"] < one["first_mib"] + 50 for one in found)


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
