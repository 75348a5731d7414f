"""The rows of a reproduced example: settings, measured metrics and the ranges in which they must lie."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from onlooker.storage.atomic import replace_file

__all__ = ["Row", "at_least", "at_most", "between", "in_words", "lies_in", "print_rows", "widen", "write_metrics"]

METRICS = "metrics.json"
Range = tuple[float | None, float | None]


def at_most(high: float) -> Range:
    return (None, high)


def at_least(low: float) -> Range:
    return (low, None)


def between(low: float, high: float) -> Range:
    return (low, high)


def lies_in(value: float, limits: Range) -> bool:
    low, high = limits
    return (low is None or value >= low) and (high is None or value <= high)


def in_words(limits: Range) -> str:
    low, high = limits
    return f"≤ {high:.3g}" if low is None else f"≥ {low:.3g}" if high is None else f"{low:.3g} – {high:.3g}"


def widen(accept: Mapping[str, Range], by: float) -> dict[str, Range]:
    """Ranges widened by a Monte-Carlo error on both sides."""
    return {
        name: (None if low is None else low - by, None if high is None else high + by)
        for name, (low, high) in accept.items()
    }


@dataclass(frozen=True)
class Row:
    """One row of an example.

    Attributes
    ----------
    name
        Starts with the name of the inverse learner or the method.
    metrics
        What was measured, by name.
    accept
        The range in which a metric must lie, for at least one of them; an open end is ``None``.
    settings
        Settings of the run.
    """

    name: str
    metrics: Mapping[str, float]
    accept: Mapping[str, Range]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = set(self.accept) - set(self.metrics)
        if missing or not self.accept:
            raise ValueError(f"row {self.name!r} accepts {sorted(missing) or 'nothing'}, which it does not measure.")

    @property
    def within(self) -> bool:
        return all(lies_in(self.metrics[name], limits) for name, limits in self.accept.items())

    def as_json(self) -> dict[str, Any]:
        accept = {name: list(limits) for name, limits in self.accept.items()}
        return {"name": self.name, **self.settings, **self.metrics, "accept": accept, "within": self.within}


def print_rows(title: str, rows: Sequence[Row], console: Console | None = None) -> None:
    """Print a table with one line per metric that has a range."""
    table = Table(title=title, title_justify="left")
    for heading in ("run", "metric", "measured", "accept", ""):
        table.add_column(heading, justify="right" if heading in ("measured", "accept") else "left")
    for row in rows:
        for number, (metric, limits) in enumerate(row.accept.items()):
            value = row.metrics[metric]
            verdict = "[green]within[/green]" if lies_in(value, limits) else "[red]OUTSIDE[/red]"
            table.add_row(row.name if number == 0 else "", metric, f"{value:.4f}", in_words(limits), verdict)
    (console or Console()).print(table)


def write_metrics(
    folder: Path,
    example: str,
    preset: str | None,
    seed: int,
    rows: Sequence[Row],
    interrupted: bool = False,
    **about: Any,
) -> Path:
    """Write metrics.json, whole or not at all, with ``about`` and, if interrupted, a mark that rows are missing."""
    path = folder / METRICS
    content: dict[str, Any] = {"example": example, "preset": preset, "seed": seed, **about}
    if interrupted:
        content["interrupted"] = True
    content["rows"] = [row.as_json() for row in rows]
    return replace_file(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
