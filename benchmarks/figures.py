"""Stores the figures that a benchmark prints, for docs/benchmarks.md and docs/promises.md.

Appends one JSON object per line to the file named by ONLOOKER_FIGURES; without it nothing is stored.
"""

import json
import os


def keep(what: str, **figures: float | str | None) -> None:
    if file := os.environ.get("ONLOOKER_FIGURES"):
        with open(file, "a") as lines:
            lines.write(json.dumps({"what": what, **figures}, ensure_ascii=False) + "\n")
