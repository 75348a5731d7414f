"""One HTML file about a result, to keep and to send: it needs no network, and no Onlooker, to be read.

Figures are inside it; a line at its top forbids browsers to fetch anything. Whatever there is to doubt comes first.
"""

import base64
import html
import io
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from onlooker.check import in_short
from onlooker.paper.rows import METRICS, in_words, lies_in
from onlooker.reconstruction import STORE, Reconstruction, load
from onlooker.summary import SUMMARY

__all__ = ["MEANING", "write_report"]

REPORT = "report.html"
KINDS = {".png": "image/png", ".gif": "image/gif"}
# Coordinates of a place, and characters of a setting, that are written out.
MOST_COORDINATES = 12
MOST_CHARACTERS = 200
EXAMPLES = {
    "bayes": "Example 1: Bayesian learning of a mixture",
    "posterior": "Example 1b: reconstruction of a posterior",
    "logistic": "Example 2: logistic regression on a9a",
    "cmdp": "Example 3: policy gradients in a constrained Markov decision process",
    "tracking": "Section 5: rewards that jump",
}
MEANING = {
    "observations": "what R̂ was made from",
    "refused": "observations with a number that was not finite",
    "beta": "β: samples are of exp(βR̂)",
    "seed": "of everything random",
    "held_out_error": "mean squared error of gradient × the points' spread on rows that the fit had not seen",
    "quadratic_error": "the same for a quadratic alone: the fit is better where R is none",
    "reward_span": "how much R̂ varies over nine tenths of the data",
    "unexplored_share": "of exp(βR̂), where no learner was",
    "rhat": "whether the chains of samples agree; below 1.01 they do",
    "ess": "independent draws that the samples are worth",
    "sampling_mismatch": "between the samples and R̂; at most 0.1",
    "unresolved_share": "of the samples, from cells too coarse for them",
    "fit_seconds": "spent on the fit",
    "draw_seconds": "spent on samples",
    "kernel_ess": "observations that a kernel used at a time",
    "bandwidth": "Δ of the kernel",
    "step_size": "μ of the chains",
    "effective_observations": "equally weighted observations that R̂ is worth",
    "jumps": "how often the reward jumped",
    "order": "cosines along each axis",
    "length": "of the fit's prior, in half-widths of the box: how smooth it takes R to be",
    "scale": "of the fit's prior, in the gradients' units: how large",
    "prior": "its kernel",
    "units": "of the fit: functions of one direction each",
    "own_units": "of these, such with a direction of their own",
    "ground": "what the units are added to",
    "reach": "how far beyond the data the fit is believed, in their extent",
    "variant": "of the kernel regression",
    "bandwidth_used": "Δ that it took on average, wider where there are few neighbours",
    "kernel_weight": "of an observation at a chain, on average",
    "nearest_distance": "from a chain to what it was shown, on average",
    "projected_share": "of steps that ended outside and were put back",
    "outside_share": "of observations outside the cells",
    "lost_chains": "chains that diverged and were left out",
    "chain_steps_per_second": "how fast they ran",
    "memory_numbers": "numbers that were remembered",
    "chains": "of samples",
    "coordinates": "of policies, that the points are",
    "measure": "that samples are with respect to",
}
STYLE = """
body { font-family: system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.lead { font-size: 1.05rem; } .quiet { color: #555; }
.doubt { background: #fef2f2; border-left: 4px solid #b91c1c; padding: .5rem 1rem; }
.calm { background: #f0fdf4; border-left: 4px solid #15803d; padding: .5rem 1rem; }
table { border-collapse: collapse; font-size: .92rem; } th, td { text-align: left; padding: .25rem .8rem .25rem 0; }
tr { border-bottom: 1px solid #e5e7eb; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
.within { color: #15803d; } .outside { color: #b91c1c; font-weight: 600; }
figure { margin: 1rem 0; } img { max-width: 100%; } figcaption { color: #555; font-size: .9rem; }
pre { background: #f3f4f6; padding: .8rem; overflow-x: auto; }
"""
ALONE = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Picture(NamedTuple):
    """A figure as a file holds it."""

    caption: str
    kind: str
    content: bytes


class Cell(NamedTuple):
    """Of a table, with the class it is shown in."""

    text: str
    looks: str = ""


class Table(NamedTuple):
    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Report:
    """What a report says.

    Attributes
    ----------
    title, lead
        What it is about, and what came out.
    doubts
        Sentences to be read first.
    pictures, tables
        In order.
    commands
        That make the same again.
    """

    title: str
    lead: str
    doubts: list[str]
    pictures: list[Picture] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


def write_report(result: Any, out: Any = None) -> Path:
    """One HTML file about a result, written whole or not at all; where it is.

    Parameters
    ----------
    result
        A folder that `onlooker reconstruct` or `reproduce` wrote, or one that a Reconstruction was saved in.
    out
        The file; by default report.html, in that folder or beside the saved Reconstruction.
    """
    folder = Path(result)
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist; give the folder of a result.")
    if (folder / METRICS).is_file():
        report, place = _of_example(folder), folder
    elif (folder / STORE).exists():
        report, place = _of_reconstruction(folder / STORE, _summary(folder / SUMMARY)), folder
    else:
        report, place = _of_reconstruction(folder, {}), folder.parent
    path = place / REPORT if out is None else Path(out)
    if path.is_dir():
        raise ValueError(f"--out {path} is a folder; give the name of a file, such as {path / REPORT}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    # What is no character, from a damaged file, is shown as its number.
    temporary.write_text(_rendered(report), encoding="utf-8", errors="backslashreplace")
    temporary.replace(path)
    return path


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({in_short(error)}); make the result again.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not what Onlooker writes; give the folder of a result.")
    return content


def _summary(path: Path) -> dict[str, Any]:
    """What summary.json says of where a result comes from."""
    content = _read(path)
    words = {name: word for name, word in content.items() if name in ("log", "source", "command", "about")}
    about = words.get("about", {})
    if not isinstance(about, dict) or not all(isinstance(word, str) for name, word in words.items() if name != "about"):
        raise ValueError(f"{path} is not what Onlooker writes: its log, command or about is strange.")
    return words


def _of_reconstruction(store: Path, summary: dict[str, Any]) -> Report:
    result = load(store)
    summit = result.summit() if result.potential is not None or result.estimate is not None else None
    dimensions = "one dimension" if result.dim == 1 else f"{result.dim} dimensions"
    name = summary.get("log", summary.get("source", ""))
    seen = f"{result.diagnostics.get('observations', 0):,} observations" + (f" of {name}" if name else "")
    known = result.diagnostics.get("effective_observations")
    if known is not None:
        seen += f", which are worth {known:,.0f} equally weighted ones,"
    lead = f"Reconstructed from {seen} in {dimensions} by method {result.method}."
    if summit is not None:
        lead += f" R̂ is highest at ({_place(summit)})."
    density = ", density=π" if result.method in ("passive", "reweighted") else ""
    made = (
        f"onlooker.reconstruct(points, gradients, method={result.method!r}{density}, "
        f"beta={result.diagnostics['beta']:g}, chains={len(result.samples)}, seed={result.diagnostics.get('seed', 0)})"
    )
    if known is not None:
        made = "observer = onlooker.Observer(…); observer.learn_many(points, gradients); observer.reconstruction()"
    settings = {
        **{name: str(word) for name, word in summary.get("about", {}).items() if name != "onlooker"},
        "chains": str(len(result.samples)),
        "draws of each": str(result.samples.shape[1]),
    }
    return Report(
        title="What do they want?",
        lead=lead,
        doubts=result.warnings,
        pictures=_pictures(result),
        tables=[
            _numbers(result.diagnostics),
            Table("Settings", ("", ""), [(Cell(name), Cell(word)) for name, word in settings.items()]),
        ],
        commands=[summary.get("command", made)],
    )


def _pictures(result: Reconstruction) -> list[Picture]:
    pictures = []
    if result.potential is not None or result.estimate is not None:
        caption = "The reconstructed reward R̂, up to a constant" + (", through its summit." if result.dim > 2 else ".")
        pictures.append(_drawn(caption, result.landscape()))
        if result.dim == 2 and result.potential is not None:
            pictures.append(
                _drawn("R̂ along each coordinate, through its summit, ± 2 standard errors.", result.curves())
            )
    what = "βR̂ below its maximum." if result.dim == 2 else "Chains that sample exp(βR̂)."
    return [*pictures, _drawn(what, result.plot())]


def _drawn(caption: str, figure: Figure) -> Picture:
    content = io.BytesIO()
    figure.savefig(content, dpi=110, format="png")
    return Picture(caption, KINDS[".png"], content.getvalue())


def _numbers(diagnostics: dict[str, Any]) -> Table:
    rows = [
        (Cell(name.replace("_", " ")), Cell(_short(value), "number"), Cell(MEANING.get(name, ""), "quiet"))
        for name, value in diagnostics.items()
    ]
    return Table("Diagnostics", ("", "", ""), rows)


def _of_example(folder: Path) -> Report:
    metrics = _read(folder / METRICS)
    try:
        return _of_metrics(folder, metrics)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{folder / METRICS} is not what Onlooker writes ({in_short(repr(error))}).") from None


def _of_metrics(folder: Path, metrics: dict[str, Any]) -> Report:
    name, rows = str(metrics["example"]), metrics["rows"]
    within = sum(bool(row["within"]) for row in rows)
    tables = [_measured(rows), _settings(rows)]
    doubts = [f"{row['name']} is outside the range it must lie in." for row in rows if not row["within"]]
    if metrics.get("interrupted"):
        doubts.insert(0, "it was interrupted: rows are missing.")
    known = metrics.get("figures")
    files = sorted(path for path in folder.iterdir() if path.suffix in KINDS and (known is None or path.name in known))
    pictures = [
        Picture(path.stem.replace("-", " ").replace("_", " "), KINDS[path.suffix], path.read_bytes()) for path in files
    ]
    preset = f", preset {metrics['preset']}" if metrics.get("preset") else ""
    made = f"onlooker reproduce {name}" + (f" --preset {metrics['preset']}" if metrics.get("preset") else "")
    return Report(
        title=EXAMPLES.get(name, name),
        lead=f"{within} of {len(rows)} rows within their ranges; seed {metrics.get('seed')}{preset}.",
        doubts=doubts,
        pictures=pictures,
        tables=tables,
        commands=[str(metrics.get("command", f"{made} --seed {metrics.get('seed')}"))],
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
    """All that a row holds beside its name and what is in the first table."""
    cells = [
        (
            Cell(str(row["name"])),
            Cell(", ".join(f"{name} {_short(value)}" for name, value in row.items() if name not in shown)),
        )
        for row in rows
        for shown in [{"name", "accept", "within", *row["accept"]}]
    ]
    return Table("Settings and other numbers", ("run", ""), cells)


def _place(place: np.ndarray) -> str:
    more = ", …" if len(place) > MOST_COORDINATES else ""
    return ", ".join(f"{number:.3g}" for number in place[:MOST_COORDINATES]) + more


def _short(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    text = f"{value:.5g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …"


def _rendered(report: Report) -> str:
    escape = html.escape
    doubts = "".join(f"<li>{escape(doubt)}</li>" for doubt in report.doubts)
    first = (
        f'<div class="doubt"><b>Read this first</b><ul>{doubts}</ul></div>'
        if doubts
        else '<div class="calm">Nothing to doubt was found.</div>'
    )
    figures = "".join(
        f'<figure><img alt="{escape(picture.caption)}" src="data:{picture.kind};base64,'
        f'{base64.b64encode(picture.content).decode()}"><figcaption>{escape(picture.caption)}</figcaption></figure>'
        for picture in report.pictures
    )
    made = ", ".join(f"{name} {version(name)}" for name in ("onlooker", "jax", "numpy", "scipy"))
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Onlooker: {escape(report.title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{ALONE}"><style>{STYLE}</style></head><body>'
        f'<h1>{escape(report.title)}</h1><p class="lead">{escape(report.lead)}</p>{first}'
        f"<h2>Figures</h2>{figures}{''.join(map(_table, report.tables))}"
        f"<h2>How to make it again</h2><pre>{escape(chr(10).join(report.commands))}</pre>"
        f'<p class="quiet">{escape(made)}, Python {platform.python_version()}.</p></body></html>\n'
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns) if any(table.columns) else ""
    body = "".join(
        "<tr>" + "".join(f'<td class="{cell.looks}">{html.escape(cell.text)}</td>' for cell in row) + "</tr>"
        for row in table.rows
    )
    return f"<h2>{html.escape(table.heading)}</h2><table><tr>{head}</tr>{body}</table>"
