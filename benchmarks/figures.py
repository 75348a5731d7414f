"""Figures that a benchmark prints, kept besides for docs/benchmarks.md and docs/promises.md.

One JSON object a line, added to the file that ONLOOKER_FIGURES names; without it nothing is kept.
"""

import json
import os


def keep(what: str, **figures: float | str | None) -> None:
    if file := os.environ.get("ONLOOKER_FIGURES"):
        with open(file, "a") as lines:
            lines.write(json.dumps({"what": what, **figures}, ensure_ascii=False) + "\n")
