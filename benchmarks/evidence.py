"""The results of the jobs that show whether promises hold: one file of benchmarks/results/evidence per job.

A job is an example at a seed (``bayes-1``), its quick preset (``bayes-quick``), an example on another machine
(``bayes-1-h200``) or a set of tests (``slow``). It writes to out/promises. Kept are the rows with their accepted
ranges, the tests that passed, seconds, memory, and the commit of the package.
"""

import json
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SCRATCH = ROOT / "out" / "promises"
KEPT = RESULTS / "evidence"


class Evidence:
    """All measurements: jobs, the figures of ``make bench``, and those of a GPU."""

    def __init__(self) -> None:
        report = RESULTS / "report.json"
        parts = json.loads(report.read_text()) if report.exists() else {}
        self.kept = [figure for part in parts.values() for figure in part["figures"]]
        self.gpu = json.loads((RESULTS / "h200.json").read_text())
        self.jobs = jobs()

    def figures(self, what: str, **like: Any) -> list[dict[str, Any]]:
        found = [one for one in self.kept if one["what"] == what]
        return [one for one in found if all(one.get(name) == value for name, value in like.items())]

    def rows(self, job: str) -> list[dict[str, Any]]:
        return self.jobs.get(job, {}).get("rows", [])

    def tests(self, suite: str, outcome: str) -> dict[str, int]:
        return self.jobs.get(suite, {}).get(outcome, {})


def jobs() -> dict[str, dict[str, Any]]:
    return {file.stem: json.loads(file.read_text()) for file in sorted(KEPT.glob("*.json"))}


def keep(job: str, shared: bool = False, **found: Any) -> None:
    """Replace the stored result of a job; ``shared`` if other jobs ran at the same time."""
    about = {"commit": _commit(), **({"shared": True} if shared else {})}
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"{job}.json").write_text(json.dumps({**about, **found}, indent=1, ensure_ascii=False) + "\n")


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The accepted ranges of each row, and the metrics they apply to."""
    written = json.loads((folder / "metrics.json").read_text())
    if written.get("interrupted"):
        raise SystemExit(f"{folder}: the example was interrupted; let it run to its end.")
    return [
        {
            "name": row["name"],
            "within": row["within"],
            "accept": row["accept"],
            **{metric: row[metric] for metric in row["accept"]},
            **({"seconds": row["seconds"]} if "seconds" in row else {}),
        }
        for row in written["rows"]
    ]


def tests_in(report: Path) -> dict[str, Any]:
    """Seconds of a JUnit file, and the numbers of passed and failed cases by file and test."""
    tree = ElementTree.parse(report)
    found: dict[str, dict[str, int]] = {"passed": {}, "failed": {}}
    for case in tree.iter("testcase"):
        if case.find("skipped") is None:
            module, name = case.get("classname", "").split(".")[-1], case.get("name", "").split("[")[0]
            good = case.find("failure") is None and case.find("error") is None
            counts = found["passed" if good else "failed"]
            counts[f"{module}::{name}"] = counts.get(f"{module}::{name}", 0) + 1
    return {"seconds": sum(float(suite.get("time", 0)) for suite in tree.iter("testsuite")), **found}


def _commit() -> str:
    """The last commit that changed the package, with a plus if it has uncommitted changes."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words, "--", "onlooker"], cwd=ROOT, capture_output=True, text=True
        ).stdout.strip()

    return git("log", "-1", "--format=%h") + "+" * bool(git("status", "--porcelain"))
