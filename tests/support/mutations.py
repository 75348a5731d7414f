"""python -m tests.support.mutations: break the sources one line at a time, and check that the named tests fail.

Every mutation is a plausible mistake: a sign, a missing π, μ for √μ. The package and its tests are copied to
a temporary folder, one text in one file is replaced, and the tests that must catch it are run there. A mutation is
caught if one of them fails; an import error, an error in a fixture or no test at all is not a catch. First, all named
tests must pass on an unbroken copy.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tests.support.mutation_list import MUTATIONS, Mutation

ROOT = Path(__file__).parent.parent.parent
COPIED = ("onlooker", "tests", "tools", "pyproject.toml")
# Seconds that the tests of one mutation may take, and those of all of them.
PATIENCE, LONG_PATIENCE = 300, 1800
FAILED = re.compile(r"^FAILED tests/(\S+::[^ \[]+(?:\[.*?\])?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutation: the test that failed, or the reason why none did, and the seconds it took."""

    mutation: str
    file: str
    caught_by: str | None
    reason: str
    seconds: float


def copied(place: Path, origin: Path = ROOT) -> Path:
    """Copy the package and its tests to a folder; file times are kept, so compiled files stay valid."""
    for name in COPIED:
        source, target = origin / name, place / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)
    return place


def environment(place: Path) -> dict[str, str]:
    """The environment of a test run, in which the copy is imported first."""
    settings = {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", **settings}


def pytest_in(place: Path, tests: Sequence[str], patience: float, *options: str) -> tuple[int, str]:
    """Exit code and output of tests that are run in a copy; −1 if they took too long."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rf", "--tb=line", "-p", "no:cacheprovider", *options]
    ids = [f"tests/{test}" for test in tests]
    try:
        done = subprocess.run(
            [*command, *ids], cwd=place, env=environment(place), capture_output=True, text=True, timeout=patience
        )
    except subprocess.TimeoutExpired:
        return -1, f"not finished after {patience:g} s"
    return done.returncode, done.stdout + done.stderr


def tried(mutation: Mutation, origin: Path = ROOT) -> Outcome:
    """Break a copy, and run the tests that must catch it."""
    with tempfile.TemporaryDirectory() as folder:
        place = copied(Path(folder), origin)
        broken = place / mutation.file
        broken.write_text(broken.read_text().replace(mutation.old, mutation.new))
        began = time.perf_counter()
        code, said = pytest_in(place, mutation.tests, PATIENCE)
        seconds = time.perf_counter() - began
    failed = FAILED.search(said)
    if code == 1 and failed is not None:
        return Outcome(mutation.name, mutation.file, failed[1], "", seconds)
    reason = "it survived" if code == 0 else f"pytest ended with {code}: {said.strip()[-300:]}"
    return Outcome(mutation.name, mutation.file, None, reason, seconds)


def unbroken(place: Path, tests: Sequence[str], jobs: int) -> str:
    """A description of what is wrong with an unbroken copy; empty if its tests pass."""
    found = subprocess.run(
        [sys.executable, "-c", "import onlooker; print(onlooker.__file__)"],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
    ).stdout.strip()
    if not found or Path(found).resolve() != (place / "onlooker" / "__init__.py").resolve():
        return f"the tests would not import the copy but {found or 'nothing'}."
    code, said = pytest_in(place, tests, LONG_PATIENCE, "-n", str(jobs))
    return "" if code == 0 else f"the unbroken tests do not pass (pytest ended with {code}):\n{said[-3000:]}"


def table(outcomes: Sequence[Outcome]) -> list[str]:
    rows = ["| mutation | file | caught by | seconds |", "|---|---|---|---|"]
    for one in outcomes:
        catch = f"`{one.caught_by}`" if one.caught_by else f"**nothing**: {one.reason.splitlines()[0]}"
        rows.append(f"| {one.mutation} | `{one.file}` | {catch.replace('|', chr(92) + '|')} | {one.seconds:.0f} |")
    return rows


def page(outcomes: Sequence[Outcome]) -> str:
    """The docs page, in Markdown."""
    caught = sum(one.caught_by is not None for one in outcomes)
    introduction = [
        "# Mutations",
        "",
        "A test that cannot fail tests nothing. `make mutations` breaks the sources, one text at a time, by",
        "plausible mistakes, and runs the tests that must catch each: a mutation is caught if one of",
        "them fails. An import error is not a catch, and all of these tests must first pass on the unbroken",
        "sources. The list of mutations is `tests/support/mutation_list.py`. This page is written by `python -m",
        "tests.support.mutations --json PATH --page docs/mutations.md`, which joins the results of a list that was",
        "run in parts (`--only`).",
        "",
        f"{caught} of {len(outcomes)} mutations were caught. Seconds include Python's start, two mutations at a time.",
        "",
    ]
    return "\n".join([*introduction, *table(outcomes), ""])


def joined(path: Path, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes, with those in a file for the mutations that were not run, in the order of the list."""
    earlier = [Outcome(**one) for one in json.loads(path.read_text())] if path.exists() else []
    found = {one.mutation: one for one in (*earlier, *outcomes)}
    return [found[mutation.name] for mutation in MUTATIONS if mutation.name in found]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutations", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only",
        action="append",
        metavar="TEXT",
        help="only mutations with TEXT in their name or file; may be repeated",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        help="write the results there; results of mutations left out by --only are kept",
    )
    parser.add_argument("--page", type=Path, metavar="PATH", help="write the docs page there")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="number of mutations at a time (default: 2)")
    options = parser.parse_args()
    wanted = options.only or [""]
    chosen = [one for one in MUTATIONS if any(text in one.name or text in one.file for text in wanted)]
    if not chosen:
        parser.error(f"no mutation has {' or '.join(wanted)} in its name or file.")
    outcomes: list[Outcome] = []
    # Every copy is made from one snapshot, because the sources may be edited meanwhile.
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        origin = copied(Path(folder))
        if wrong := unbroken(origin, sorted({test for one in chosen for test in one.tests}), options.jobs):
            print(wrong)
            return 1
        for number, outcome in enumerate(pool.map(partial(tried, origin=origin), chosen), 1):
            outcomes.append(outcome)
            found = outcome.caught_by or outcome.reason
            print(f"{number:3d} of {len(chosen)}: {outcome.mutation}: {found}", flush=True)
    if options.json:
        outcomes = joined(options.json, outcomes)
        options.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1, ensure_ascii=False) + "\n")
    caught = sum(one.caught_by is not None for one in outcomes)
    print("", *table(outcomes), "", f"{caught} of {len(outcomes)} caught", sep="\n")
    if options.page:
        options.page.write_text(page(outcomes))
    return 0 if caught == len(outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
