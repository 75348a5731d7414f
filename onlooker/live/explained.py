"""The report of an explanation as one HTML file: bars of weights, the numbers, and the warnings first."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from onlooker.explanation.command import RESULT, SUMMARY
from onlooker.explanation.result import Explanation
from onlooker.reconstruction.report import REPORT, Cell, Picture, Report, Table, read_json, write

__all__ = ["is_explanation", "write_explanation_report"]


def is_explanation(path: Path) -> bool:
    """Whether this is a saved explanation, or a folder that ``onlooker explain`` wrote."""
    return (path / RESULT).is_file() or (path.is_file() and path.read_bytes()[:21] == b"onlooker Explanation ")


def write_explanation_report(result: Any, out: Any = None) -> Path:
    """Write a report of an explanation as one HTML file, atomically; returns its path.

    Parameters
    ----------
    result
        A folder that ``onlooker explain`` wrote, or a saved explanation.
    out
        The file to write; default: report.html beside it.
    """
    path = Path(result)
    folder = path if path.is_dir() else path.parent
    why = Explanation.load(path / RESULT if path.is_dir() else path)
    drawn = io.BytesIO()
    why.plot().savefig(drawn, format="png", dpi=110)
    lead = (
        f"{why.rows:,} rows of {why.dim:,} dimensions, explained by {len(why.names)} features: "
        f"{'no warning says that the weights may be wrong' if why.trusted else 'read the warnings first'}."
    )
    picture = Picture("Weights with 95 % intervals; grey is what cannot be known.", "image/png", drawn.getvalue())
    log = read_json(folder / SUMMARY).get("log")
    commands = [f"onlooker explain {log}"] if isinstance(log, str) else []
    warnings = [str(message) for message in why.warnings]
    return write(
        Report("What these learners want", lead, warnings, [picture], _tables(why), commands),
        folder / REPORT if out is None else Path(out),
    )


def _tables(why: Explanation) -> list[Table]:
    known = np.eye(len(why.found.values)) - why.found.unidentified @ why.found.unidentified.T
    value, error = why.found.contrast(known)
    low, high = why.found.interval(known)
    names = [*why.names, *(f"{name} (suspect)" for name in why.suspected)]
    rows = [
        [Cell(name), *(Cell(f"{number:.4g}", "number") for number in numbers)]
        for name, *numbers in zip(names, value, error, low, high, strict=True)
    ]
    numbers = {
        "explained": (why.explained, "share of |∇R|² that features and suspects explain, without the noise"),
        "misfit": (why.misfit, "z of the misfit test: standard normal if the features suffice"),
        "reliability": (why.reliability, "share of the Jacobians' products that is not their own noise"),
    }
    unknown = [[Cell(json.dumps(direction, ensure_ascii=False))] for direction in why.unidentified]
    tables = [
        Table("Weights, less what cannot be known of them", ["feature", "weight", "error", "low", "high"], rows),
        Table(
            "Whether the features suffice",
            ["", "", "meaning"],
            [[Cell(name), Cell(f"{number:.4g}", "number"), Cell(words)] for name, (number, words) in numbers.items()],
        ),
    ]
    if unknown:
        tables.append(Table("What nothing that was seen depends on", ["weights, in these proportions"], unknown))
    return tables
