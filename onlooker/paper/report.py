"""The HTML report of a reproduced example: its rows with their ranges, its figures, and the command to repeat it."""

from pathlib import Path
from typing import Any

from onlooker.core.messages import in_short
from onlooker.paper.rows import METRICS, in_words, lies_in
from onlooker.reconstruction.report import KINDS, REPORT, Cell, Picture, Report, Table, read_json, short, write

__all__ = ["write_example_report"]

EXAMPLES = {
    "bayes": "Example 1: Bayesian learning of a mixture",
    "posterior": "Example 1b: reconstruction of a posterior",
    "logistic": "Example 2: logistic regression on a9a",
    "cmdp": "Example 3: policy gradients in a constrained Markov decision process",
    "tracking": "Section 5: rewards that jump",
}


def write_example_report(folder: Path, out: Path | None = None) -> Path:
    """Write the report of a folder that `onlooker reproduce` wrote; by default to report.html in that folder."""
    return write(_of_example(folder), folder / REPORT if out is None else out)


def _of_example(folder: Path) -> Report:
    metrics = read_json(folder / METRICS)
    try:
        return _of_metrics(folder, metrics)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{folder / METRICS} is not what Onlooker writes ({in_short(repr(error))}).") from None


def _of_metrics(folder: Path, metrics: dict[str, Any]) -> Report:
    name, rows = str(metrics["example"]), metrics["rows"]
    within = sum(bool(row["within"]) for row in rows)
    tables = [_measured(rows), _settings(rows)]
    warnings = [f"{row['name']} is outside the range it must lie in." for row in rows if not row["within"]]
    if metrics.get("interrupted"):
        warnings.insert(0, "it was interrupted: rows are missing.")
    known = metrics.get("figures")
    files = sorted(path for path in folder.iterdir() if path.suffix in KINDS and (known is None or path.name in known))
    pictures = [
        Picture(path.stem.replace("-", " ").replace("_", " "), KINDS[path.suffix], path.read_bytes()) for path in files
    ]
    preset = f", preset {metrics['preset']}" if metrics.get("preset") else ""
    command = f"onlooker reproduce {name}" + (f" --preset {metrics['preset']}" if metrics.get("preset") else "")
    return Report(
        title=EXAMPLES.get(name, name),
        lead=f"{within} of {len(rows)} rows within their ranges; seed {metrics.get('seed')}{preset}.",
        warnings=warnings,
        pictures=pictures,
        tables=tables,
        commands=[str(metrics.get("command", f"{command} --seed {metrics.get('seed')}"))],
    )


def _measured(rows: list[dict[str, Any]]) -> Table:
    cells = []
    for row in rows:
        for number, (metric, limits) in enumerate(row["accept"].items()):
            value, name = float(row[metric]), str(row["name"]) if number == 0 else ""
            verdict = Cell("within", "within") if lies_in(value, limits) else Cell("OUTSIDE", "outside")
            measured = Cell(f"{value:.4f}", "number"), Cell(in_words(limits), "number")
            cells.append((Cell(name), Cell(metric), *measured, verdict))
    return Table("Measured", ("run", "metric", "measured", "must be", ""), cells)


def _settings(rows: list[dict[str, Any]]) -> Table:
    """Everything in a row that is not in the first table."""
    cells = [
        (
            Cell(str(row["name"])),
            Cell(", ".join(f"{name} {short(value)}" for name, value in row.items() if name not in shown)),
        )
        for row in rows
        for shown in [{"name", "accept", "within", *row["accept"]}]
    ]
    return Table("Settings and other numbers", ("run", ""), cells)
