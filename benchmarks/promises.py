"""Writes docs/promises.md: every promise, the command that shows it, the measured figure, and whether it holds.

    python -m benchmarks.promises             # prints the table and writes the page, from stored evidence
    python -m benchmarks.promises --run       # ``make promises``: first runs missing jobs, for hours
    python -m benchmarks.promises --run bayes-1 slow [--shared]     # runs these again; --shared: beside other jobs
    python -m benchmarks.promises --add bayes-1-h200                # adds results of another machine

benchmarks/evidence.py stores the evidence, benchmarks/judges.py judges it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import evidence
from benchmarks.evidence import ROOT, SCRATCH, Evidence
from benchmarks.judges import (
    MISSING,
    SEEDS,
    Verdict,
    bound,
    example_2_in_time,
    fresh,
    full,
    in_memory,
    in_time,
    measured,
    microseconds,
    mutations,
    normals,
    on_other_machines,
    passed,
    picoseconds,
    pools_on_gpu,
    rows,
    unbiased,
    unseen,
)

PAGE = ROOT / "docs" / "promises.md"
EXAMPLES = ("bayes", "posterior", "logistic", "cmdp", "tracking")
TESTS = {
    "tests": ["-n", "2", "--dist", "worksteal"],
    # Without the full examples, which are separate jobs.
    "slow": [
        "-m",
        "slow",
        "-n",
        "2",
        "--deselect",
        "tests/paper/test_paper.py::test_every_row_is_within_its_range[full",
    ],
    "browser": ["-m", "browser"],
}
JOBS = {
    **{
        f"{example}-{seed}": ["reproduce", example, *(["--quick"] if seed == "quick" else ["--seed", str(seed)])]
        for example in EXAMPLES
        for seed in ("quick", *SEEDS)
    },
    "demo": ["demo"],
}


@dataclass(frozen=True)
class Promise:
    subject: str
    words: str
    command: str
    judge: Callable[[Evidence], Verdict]


ROWS = "onlooker reproduce {} --seed 0"
PROMISES = (
    # The spine.
    Promise("Spine", "`onlooker demo` in ≤ 20 s", "onlooker demo", in_time(20, "demo")),
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
        "pytest tests/inverse/test_inverse.py tests/inverse/test_laws.py",
        passed("tests", "test_inverse::", "test_laws"),
    ),
    Promise("Spine", "Bad input: clear error, exit code 2", "pytest tests/test_cli.py", passed("tests", "test_cli::")),
    # Pools and queries.
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
        "shortcut simulator near the 4.6 µs once measured",
        "python -m benchmarks.pools",
        bound(
            "us", 4.6, False, "one chain, 124 dimensions", " µs", who="multikernel, nearest 4 of the pool (shortcut)"
        ),
    ),
    Promise(
        "Pools",
        "multikernel on an H200, 1024 chains × 65 536 × 124: a step as fast as plain products, 1.1 ms",
        "python -m benchmarks.gpu",
        pools_on_gpu,
    ),
    Promise(
        "Pools",
        "Weights, limits, permutations, empty pools",
        "pytest tests/inverse/test_pools.py tests/inverse/test_active.py",
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
        "Bad data are detected",
        "pytest tests/data/test_quality.py tests/reconstruction/test_reconstruct.py",
        passed("tests", "test_quality::", "test_reconstruct::"),
    ),
    # Policies.
    Promise("Policies", "Example 3: every row within", ROWS.format("cmdp"), rows("cmdp")),
    Promise("Policies", "in ≤ 6 minutes", ROWS.format("cmdp"), in_time(360, *full("cmdp"))),
    Promise("Policies", "`cmdp --quick` in ≤ 60 s", "onlooker reproduce cmdp --quick", in_time(60, "cmdp-quick")),
    Promise(
        "Policies",
        "Exact figures to 1e-8, Jacobians to 1e-7",
        "pytest tests/simulation/test_cmdp.py tests/core/test_policies.py",
        passed("tests", "test_cmdp::", "test_policies::", "test_coordinates::"),
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
    Promise(
        "Tracking",
        "constant memory (to 20 MiB) over 1e7 observations",
        "pytest -m slow tests/fit/test_jumps.py",
        passed("slow", "ten_million_observations"),
    ),
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
        "every job on that log under 2 GB",
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
        "pytest -m slow tests/storage/test_state_file.py",
        passed("slow", "test_killed"),
    ),
    Promise(
        "Real learners",
        "Recording changes nothing; logs, signs, bad files",
        "pytest tests/data/test_record.py tests/data/test_log.py tests/data/test_iterates.py",
        passed("tests", "test_record::", "test_log::", "test_iterates::"),
    ),
    # The page.
    Promise("Page", "works in a real Chromium", "make test-browser", passed("browser", "test")),
    Promise(
        "Page",
        "≥ 10 000 observations/s in the demo",
        "python -m benchmarks.page",
        bound("observations", 10_000, True, "page", "/s"),
    ),
    Promise(
        "Page",
        "while R̂ is redrawn ≥ 2 times a second",
        "python -m benchmarks.page",
        bound("rewards", 2, True, "page", "/s"),
    ),
    Promise(
        "Page",
        "loopback only",
        "pytest tests/live/test_page.py -k served",
        passed("tests", "is_served_to_this_machine"),
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
        "Proof",
        "one suite of checks on every learner",
        "pytest tests/test_testing.py",
        passed("tests", "test_testing::", "test_checks::"),
    ),
    Promise("Proof", "`make test` in < 8 minutes", "make test", in_time(480, "tests")),
    Promise("Proof", "all slow tests, besides the rows above", "make test-slow", passed("slow", "test")),
    Promise(
        "Proof",
        "rows within on an H200",
        "onlooker reproduce posterior --seed 1",
        on_other_machines("h200"),
    ),
    Promise("Proof", "fresh clone, empty package cache: `make demo`", "python -m benchmarks.fresh", fresh("demo", 300)),
    Promise("Proof", "the same with a warm cache in ≤ 90 s", "python -m benchmarks.fresh", fresh("demo_warm", 90)),
    Promise("Proof", "fresh clone: `make test`", "python -m benchmarks.fresh --test", fresh("test", 900)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs="*", choices=[*JOBS, *TESTS], metavar="JOB", help="jobs; default: missing ones")
    parser.add_argument("--shared", action="store_true", help="other jobs run at the same time")
    parser.add_argument("--add", nargs="+", type=Path, default=[], metavar="FOLDER", help="results to add")
    given = parser.parse_args()
    for folder in given.add:
        evidence.keep(folder.name, rows=evidence.rows_in(folder))
    if given.run is not None:
        for job in given.run or [job for job in (*JOBS, *TESTS) if job not in evidence.jobs()]:
            print(job, flush=True)
            carry_out(job, given.shared)
    known = Evidence()
    table = [(one, *one.judge(known)) for one in PROMISES]
    for one, figure, holds in table:
        print(f"{_word(figure, holds):<12} {one.subject:<14} {one.words}: {figure}")
    counts = [sum(holds is wanted for _, _, holds in table) for wanted in (True, False, None)]
    print("{} kept, {} not, {} not run or not at all seeds".format(*counts))
    PAGE.write_text(page(table, counts, sorted({job["commit"] for job in known.jobs.values()})))


def page(table: list[tuple[Promise, str, bool | None]], counts: list[int], commits: list[str]) -> str:
    lines = [
        "# Promises",
        "",
        "Every promise, the command that shows it, the figure of the last run, and whether it holds: "
        "{} kept, {} not kept, {} not run or not run at all seeds.".format(*counts)
        + " `make promises` runs everything except the GPU's part, which takes hours, and writes this page; `python -m "
        "benchmarks.promises` writes it from stored results in benchmarks/results. Rows are those of seeds 0, 1 "
        f"and 2, times those of two cores, and the package that of commit {', '.join(commits)}.",
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


def carry_out(job: str, shared: bool) -> None:
    """Run a job and store its result; an example or a demo that does not finish has none."""
    folder = SCRATCH / job
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if tests := job in TESTS:
        command = ["pytest", f"--junitxml={folder / 'tests.xml'}", *TESTS[job]]
    else:
        command = ["onlooker", *JOBS[job], "--out", str(folder)]
    environment = {**os.environ, **({"OPENBLAS_NUM_THREADS": "1"} if tests else {})}
    began = time.perf_counter()
    with (folder / "printed.txt").open("w") as printed:
        running = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=printed, stderr=subprocess.STDOUT, env=environment, cwd=ROOT
        )
        _, status, used = os.wait4(running.pid, 0)
    taken = {"seconds": round(time.perf_counter() - began, 1), "gib": round(used.ru_maxrss / 2**20, 2)}
    if tests and (folder / "tests.xml").exists():
        evidence.keep(job, shared, **evidence.tests_in(folder / "tests.xml"))
    elif (folder / "metrics.json").exists():
        evidence.keep(job, shared, **taken, rows=evidence.rows_in(folder))
    elif status == 0:
        evidence.keep(job, shared, **taken)
    if status:
        print(f"{job} ended with {os.waitstatus_to_exitcode(status)}; see {folder / 'printed.txt'}")


if __name__ == "__main__":
    main()
