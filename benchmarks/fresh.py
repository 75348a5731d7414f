"""The README's commands as a new user runs them: a fresh clone, a new environment, an empty package cache.

    python -m benchmarks.fresh [--test] [--pythons python3.11 python3.12 python3.13]

Measures the seconds of ``make demo`` in a fresh clone, in a second clone with cached packages and, with --test, of
``make test``. They are stored in benchmarks/results/fresh.json for each Python version, and the results of the tests as
evidence. A clone has committed files only.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks import evidence
from benchmarks.evidence import ROOT

RESULTS = evidence.RESULTS / "fresh.json"


def made(target: str, python: str, folder: Path, cache: Path, **settings: str) -> float:
    """Seconds of a target in a new clone; its output is shown if it fails."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    data = {"ONLOOKER_DATA": os.environ["ONLOOKER_DATA"]} if "ONLOOKER_DATA" in os.environ else {}
    home = {"PATH": os.environ["PATH"], "HOME": str(folder), "PIP_CACHE_DIR": str(cache), **data}
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    began = time.perf_counter()
    command = ["make", target, f"PYTHON={python}"]
    done = subprocess.run(
        command, cwd=folder, env={**pip, **home, **settings}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"make {target} with {python} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", action="store_true", help="also run make test")
    parser.add_argument("--pythons", nargs="+", default=["python3.11", "python3.12", "python3.13"])
    given = parser.parse_args()
    found = []
    for python in given.pythons:
        path = shutil.which(python)
        if path is None:
            print(f"{python}: not on this machine")
            continue
        name = subprocess.run([path, "-V"], capture_output=True, text=True, check=True).stdout.strip()
        with tempfile.TemporaryDirectory() as scratch:
            cache, row = Path(scratch) / "cache", {"python": name}
            row["demo"] = made("demo", path, Path(scratch) / "first", cache)
            row["demo_warm"] = made("demo", path, Path(scratch) / "second", cache)
            if given.test:
                report = Path(scratch) / "tests.xml"
                options = {"PYTEST_ADDOPTS": f"--junitxml={report}"}
                row["test"] = made("test", path, Path(scratch) / "third", Path(scratch) / "another", **options)
                evidence.keep("tests", **evidence.tests_in(report))
        found.append(row)
        print("  ".join(f"{key}: {value if key == 'python' else f'{value:.0f} s'}" for key, value in row.items()))
    names = {row["python"] for row in found}
    earlier = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    kept = [row for row in earlier if row["python"] not in names]
    RESULTS.write_text(json.dumps(sorted(kept + found, key=lambda row: row["python"]), indent=1) + "\n")


if __name__ == "__main__":
    main()
