"""What was promised, the command that shows it, the figure it gave, and whether that holds: docs/promises.md.

    python -m benchmarks.promises             # the table, from the evidence there is; the page from the table
    python -m benchmarks.promises --run       # ``make promises``: what is missing of it first, hours on two cores

Evidence is of four kinds: rows of ``onlooker reproduce`` (full at three seeds, and quick), figures of ``make bench``
(benchmarks/results/report.json), results of the tests (JUnit files), and fresh clones (benchmarks/fresh.py). Rows, test
results and timings lie in out/promises, where a folder that is deleted is made anew. A time is judged only if the job
had the machine to itself: a file named ``shared`` in its folder says that it had not.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.mutations import MUTATIONS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
EVIDENCE = ROOT / "out" / "promises"
PAGE = ROOT / "docs" / "promises.md"
SEEDS = (0, 1, 2)
PYTHONS = ("3.11", "3.12", "3.13")
EXAMPLES = ("bayes", "posterior", "logistic", "cmdp", "tracking")
TESTS = {
    "tests": ["-n", "2", "--dist", "loadscope"],
    "slow": ["-m", "slow", "-n", "2", "--dist", "loadscope"],
    "browser": ["-m", "browser"],
}

# What a judge hands back: the figure, and whether the promise holds; None where there is no evidence.
Verdict = tuple[str, bool | None]
MISSING: Verdict = ("—", None)


@dataclass(frozen=True)
class Promise:
    subject: str
    words: str
    command: str
    judge: Callable[["Evidence"], Verdict]


class Evidence:
    """All that was measured."""

    def __init__(self) -> None:
        report = RESULTS / "report.json"
        parts = json.loads(report.read_text()) if report.exists() else {}
        self.kept = [figure for part in parts.values() for figure in part["figures"]]
        self.gpu = json.loads((RESULTS / "h200.json").read_text())
        self.rows = {folder.name: _rows(folder) for folder in sorted(EVIDENCE.glob("*-*")) if _rows(folder)}
        self.tests = {name: _outcomes(EVIDENCE / f"{name}.xml") for name in TESTS}

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


ROWS = "onlooker reproduce {} --seed 0"
PROMISES = (
    # The spine.
    Promise("Spine", "`onlooker demo` in ≤ 20 s", "onlooker demo", in_time(20, "demo-0")),
    Promise("Spine", "Example 1: every row within, must-fail rows too", ROWS.format("bayes"), rows("bayes")),
    Promise("Spine", "in ≤ 10 minutes", ROWS.format("bayes"), in_time(600, *full("bayes"))),
    Promise("Spine", "under 2 GB", ROWS.format("bayes"), in_memory(1.86, *full("bayes"))),
    Promise("Spine", "`bayes --quick` in ≤ 60 s", "onlooker reproduce bayes --quick", in_time(60, "bayes-quick")),
    Promise("Spine", "Example 1b: every row within", ROWS.format("posterior"), rows("posterior")),
    Promise(
        "Spine",
        "≥ 3 × BlackJAX's SGLD",
        "python -m benchmarks.throughput",
        bound("ratio", 3, True, "throughput", " ×", who="BlackJAX SGLD, 256 chains"),
    ),
    Promise(
        "Spine",
        "≥ 2 × a fused Numba loop",
        "python -m benchmarks.throughput",
        bound("ratio", 2, True, "throughput", " ×", who="fused Numba loop, all cores"),
    ),
    Promise(
        "Spine",
        "≥ 500 × a NumPy loop",
        "python -m benchmarks.throughput",
        bound("ratio", 500, True, "throughput", " ×", who="NumPy loop, one chain"),
    ),
    Promise("Spine", "256 chains or more: ≥ .5 of the best normals/s", "python -m benchmarks.throughput", normals),
    Promise("Spine", "1M chains on an H200: ≤ 16 ps a chain-step", "python -m benchmarks.gpu", picoseconds),
    Promise("Spine", "17 408 chains on an H200: .7 µs a step", "python -m benchmarks.gpu", microseconds),
    Promise(
        "Spine",
        "Updates equal their formulas; laws, orders, mutations",
        "pytest tests/test_inverse.py tests/test_laws.py",
        passed("tests", "test_inverse::", "test_laws"),
    ),
    Promise("Spine", "Bad input: a sentence, exit code 2", "pytest tests/test_cli.py", passed("tests", "test_cli::")),
    # Pools and questions.
    Promise("Pools", "Example 2 (a9a, N = 124): every row within", ROWS.format("logistic"), rows("logistic")),
    Promise(
        "Pools", "in ≤ 15 minutes for the paper's rows", ROWS.format("logistic"), example_2_in_time(900, ours=False)
    ),
    Promise(
        "Pools", "`logistic --quick` in ≤ 90 s", "onlooker reproduce logistic --quick", in_time(90, "logistic-quick")
    ),
    Promise(
        "Pools",
        "one chain: ≥ 2.5 × Octave's 2900 steps/s (≤ 138 µs a step)",
        "python -m benchmarks.pools",
        bound("us", 138, False, "one chain, 124 dimensions", " µs", who="multikernel, every pool drawn"),
    ),
    Promise(
        "Pools",
        "classical: ≥ 700 000 steps/s (≤ 1.43 µs)",
        "python -m benchmarks.pools",
        bound("us", 1.43, False, "one chain, 124 dimensions", " µs", who="classical"),
    ),
    Promise(
        "Pools",
        "shortcut simulator near the 4.6 µs that were seen",
        "python -m benchmarks.pools",
        bound(
            "us", 4.6, False, "one chain, 124 dimensions", " µs", who="multikernel, nearest 4 of the pool (shortcut)"
        ),
    ),
    Promise(
        "Pools",
        "multikernel on an H200, 1024 chains × 65 536 × 124: the 1.1 ms that plain products took",
        "python -m benchmarks.gpu",
        pools_on_gpu,
    ),
    Promise(
        "Pools",
        "Weights, limits, permutations, empty pools",
        "pytest tests/test_pools.py tests/test_active.py",
        passed("tests", "test_pools::", "test_active::"),
    ),
    # Our own.
    Promise(
        "Our own",
        "replay, 100-step agents: TV ≤ .08, .035, .02 from 1e5, 1e6, 1e7",
        ROWS.format("bayes"),
        measured("bayes", "replay", "d1", "d2"),
    ),
    Promise(
        "Our own",
        "potential on a9a: W1 ≤ .065 (mean), .22 (max), logit ≤ .3 from 50-step agents",
        ROWS.format("logistic"),
        measured("logistic", "potential, 50-step", "w1_mean", "w1_max", "logit_w1"),
    ),
    Promise("Our own", "2-D rewards it was not tuned on", "python -m benchmarks.unseen", unseen(lambda dim: dim == 2)),
    Promise("Our own", "the same up to 40 dimensions", "python -m benchmarks.unseen", unseen(lambda dim: dim > 2)),
    Promise(
        "Our own",
        "1e6 two-dimensional rows in ≤ 60 s",
        "python -m benchmarks.scaling",
        bound("first", 60, False, "observations", " s", job="reconstruct", observations=1_000_000),
    ),
    Promise(
        "Our own",
        "and under 2 GB",
        "python -m benchmarks.scaling",
        bound("gib", 1.86, False, "observations", " GiB", job="reconstruct", observations=1_000_000),
    ),
    Promise(
        "Our own",
        "4e5 rows at N = 124 in ≤ 10 minutes",
        ROWS.format("logistic"),
        example_2_in_time(600, ours=True),
    ),
    Promise(
        "Our own",
        "Bad data are noticed",
        "pytest tests/test_quality.py tests/test_reconstruct.py",
        passed("tests", "test_quality::", "test_reconstruct::"),
    ),
    # Policies.
    Promise("Policies", "Example 3: every row within", ROWS.format("cmdp"), rows("cmdp")),
    Promise("Policies", "in ≤ 6 minutes", ROWS.format("cmdp"), in_time(360, *full("cmdp"))),
    Promise("Policies", "`cmdp --quick` in ≤ 60 s", "onlooker reproduce cmdp --quick", in_time(60, "cmdp-quick")),
    Promise(
        "Policies",
        "Exact figures to 1e-8, Jacobians to 1e-7",
        "pytest tests/test_cmdp.py tests/test_coordinates.py",
        passed("tests", "test_cmdp::", "test_coordinates::"),
    ),
    Promise("Policies", "estimators within 3 s.e.; one batch is biased", "python -m benchmarks.policies", unbiased),
    Promise(
        "Policies",
        "1e5 gradients in ≤ 180 s",
        "python -m benchmarks.policies",
        bound("seconds_1e5", 180, False, "estimator", " s"),
    ),
    Promise(
        "Policies",
        "one chain ≥ 50 × Octave",
        "python -m benchmarks.policies",
        bound("octave_ratio", 50, True, "listing's loop", " ×", chains=1),
    ),
    # Tracking.
    Promise("Tracking", "Sec. 5: every row within", ROWS.format("tracking"), rows("tracking")),
    Promise("Tracking", "in ≤ 3 minutes", ROWS.format("tracking"), in_time(180, *full("tracking"))),
    Promise(
        "Tracking",
        "≥ 95 % of jumps within a recovery time, ≤ 1 false alarm per 50 000",
        ROWS.format("tracking"),
        measured("tracking", "potential, jumps noticed", "found_within_recovery", "false_alarms_per_50000"),
    ),
    Promise("Tracking", "constant memory over 1e7 observations", "python -m benchmarks.tracking", memory_of_1e7),
    # Real learners.
    Promise(
        "Real learners",
        "CartPole: Spearman ≥ .9, Pearson ≥ .95, ≥ .1 above simple scores, three seeds",
        "pytest -m slow tests/test_examples.py",
        passed("slow", "test_cartpole"),
    ),
    Promise(
        "Real learners",
        "a log of 1e7 is read at ≥ 2 M/s (≤ 5 s)",
        "python -m benchmarks.logs",
        bound("seconds", 5, False, "log", " s", job="read"),
    ),
    Promise(
        "Real learners",
        "every job on it under 2 GB",
        "python -m benchmarks.logs",
        bound("peak_gb", 2, False, "log", " GB"),
    ),
    Promise(
        "Real learners",
        "torch recorder ≤ 40 µs a step",
        "python -m benchmarks.recorders",
        bound("more_us", 40, False, "recorder", " µs", who="torch"),
    ),
    Promise(
        "Real learners",
        "the same into a log that agents share",
        "python -m benchmarks.recorders",
        bound("more_us", 40, False, "recorder", " µs", who="shared"),
    ),
    Promise(
        "Real learners",
        "optax recorder ≤ 40 µs",
        "python -m benchmarks.recorders",
        bound("more_us", 40, False, "recorder", " µs", who="optax"),
    ),
    Promise(
        "Real learners",
        "plain recorder ≤ 40 µs",
        "python -m benchmarks.recorders",
        bound("more_us", 40, False, "recorder", " µs", who="plain"),
    ),
    Promise(
        "Real learners",
        "Clients of different learning rates: rms < .4, correlation > .98 on a small budget",
        "pytest tests/test_examples.py -k clients",
        passed("tests", "test_clients"),
    ),
    Promise(
        "Real learners",
        "≤ 5 % of a loop of 1 ms",
        "python -m benchmarks.recorders",
        bound("percent_of_1_ms", 5, False, "recorder", " %"),
    ),
    Promise(
        "Real learners",
        "200 kills: nothing lost, every resume identical",
        "pytest -m slow tests/test_checkpoint.py",
        passed("slow", "test_killed"),
    ),
    Promise(
        "Real learners",
        "Recording changes nothing; logs, signs, bad files",
        "pytest tests/test_record.py tests/test_log.py tests/test_iterates.py",
        passed("tests", "test_record::", "test_log::", "test_iterates::"),
    ),
    # The page.
    Promise("Page", "works in a real Chromium", "make test-browser", passed("browser")),
    Promise(
        "Page",
        "≥ 10 000 observations/s in the demo",
        "python -m benchmarks.page",
        bound("observations", 10_000, True, "page", "/s"),
    ),
    Promise(
        "Page",
        "while R̂ is drawn anew ≥ 2 times a second",
        "python -m benchmarks.page",
        bound("rewards", 2, True, "page", "/s"),
    ),
    Promise(
        "Page", "loopback only", "pytest tests/test_live.py -k served", passed("tests", "is_served_to_this_machine")
    ),
    # Proof.
    Promise("Proof", "every mutation is caught", "make mutations", mutations),
    Promise(
        "Proof",
        "10 000 inputs per reader: documented errors only",
        "pytest -m slow tests/test_fuzz.py",
        passed("slow", "test_fuzz::"),
    ),
    Promise(
        "Proof", "one suite of checks on every learner", "pytest tests/test_checks.py", passed("tests", "test_checks::")
    ),
    Promise("Proof", "`make test` in < 8 minutes", "make test", in_time(480, "tests-0")),
    Promise("Proof", "all slow tests", "make test-slow", passed("slow")),
    Promise("Proof", "fresh clone, empty package cache: `make demo`", "python -m benchmarks.fresh", fresh("demo", 300)),
    Promise("Proof", "the same with a warm cache in ≤ 90 s", "python -m benchmarks.fresh", fresh("demo_warm", 90)),
    Promise("Proof", "fresh clone: `make test`", "python -m benchmarks.fresh --test", fresh("test", 900)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true")
    if parser.parse_args().run:
        gather()
    evidence = Evidence()
    table = [(one, *one.judge(evidence)) for one in PROMISES]
    for one, figure, holds in table:
        print(f"{_word(figure, holds):<12} {one.subject:<14} {one.words}: {figure}")
    counts = [sum(holds is wanted for _, _, holds in table) for wanted in (True, False, None)]
    print("{} kept, {} not, {} not run or not at all seeds".format(*counts))
    PAGE.write_text(page(table, counts))


def page(table: list[tuple[Promise, str, bool | None]], counts: list[int]) -> str:
    lines = [
        "# Promises",
        "",
        "What the program is promised to do, the command that shows it, the figure of the last run, and whether it "
        "holds: {} kept, {} not kept, {} not run, or not at all seeds.".format(*counts)
        + " `make promises` runs all of it but the GPU's part, for hours, and writes this page; `python -m "
        "benchmarks.promises` writes it from what was run. Rows are of seeds 0, 1 and 2, times of two cores.",
        "",
        "| | promise | command | figure | holds |",
        "|---|---|---|---|---|",
    ]
    for one, figure, holds in table:
        cells = (one.subject, one.words, f"`{one.command}`", figure, _word(figure, holds))
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _word(figure: str, holds: bool | None) -> str:
    if holds is None:
        return "not run" if (figure, holds) == MISSING else "so far"
    return "yes" if holds else "**no**"


def gather() -> None:
    """What is not in out/promises yet; benchmarks, mutations and fresh clones have commands of their own."""
    for example in EXAMPLES:
        _timed(f"{example}-quick", ["-m", "onlooker", "reproduce", example, "--quick"])
        for seed in SEEDS:
            _timed(f"{example}-{seed}", ["-m", "onlooker", "reproduce", example, "--seed", str(seed)])
    _timed("demo-0", ["-m", "onlooker", "demo"])
    for name, options in TESTS.items():
        folder, report = EVIDENCE / f"{name}-0", EVIDENCE / f"{name}.xml"
        if not report.exists():
            _timed(folder.name, ["-m", "pytest", f"--junitxml={report}", *options], out=False)


def _timed(job: str, arguments: list[str], out: bool = True) -> None:
    """Run it and keep what it printed, its seconds and its peak memory; of a job that fails neither of these."""
    folder = EVIDENCE / job
    if (folder / "seconds").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    print(job, flush=True)
    began = time.perf_counter()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"} if not out else dict(os.environ)
    command = [sys.executable, *arguments, *(["--out", str(folder)] if out else [])]
    with (folder / "printed.txt").open("w") as printed:
        running = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, env=environment, cwd=ROOT)
        _, status, used = os.wait4(running.pid, 0)
    if status:
        print(f"{job} ended with {os.waitstatus_to_exitcode(status)}; see {folder / 'printed.txt'}")
        return
    (folder / "gib").write_text(f"{used.ru_maxrss / 2**20:.2f}\n")
    (folder / "seconds").write_text(f"{time.perf_counter() - began:.1f}\n")


if __name__ == "__main__":
    main()
