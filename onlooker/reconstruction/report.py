"""Report of a result as one HTML file, which is read without a network and without Onlooker.

Figures are embedded, and a content security policy forbids browsers to fetch anything. Warnings come first.
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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onlooker.core.messages import in_short
from onlooker.reconstruction.folder import SUMMARY
from onlooker.reconstruction.result import Reconstruction
from onlooker.reconstruction.store import STORE, load
from onlooker.storage.atomic import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "KINDS",
    "MEANING",
    "REPORT",
    "Cell",
    "Picture",
    "Report",
    "Table",
    "read_json",
    "short",
    "write",
    "write_report",
]

REPORT = "report.html"
KINDS = {".png": "image/png", ".gif": "image/gif"}
# Largest number of coordinates of a point and of characters of a setting that are shown.
MOST_COORDINATES = 12
MOST_CHARACTERS = 200
MEANING = {
    "observations": "number of observations used",
    "rejected": "observations rejected because they contain a NaN or infinity",
    "beta": "β: samples are of exp(βR̂)",
    "seed": "seed of all random numbers",
    "held_out_error": "mean squared error of gradient × the points' spread on held-out rows",
    "quadratic_error": "the same error for a quadratic alone: larger if R is not quadratic",
    "reward_span": "range of R̂ over nine tenths of the data",
    "unexplained_share": "share of what agents follow that is neither R̂ nor noise",
    "curl_share": "strength of what turns in circles, which no reward explains, relative to R̂",
    "dissent_share": "share of what R̂ explains that single agents follow and others do not",
    "clipped_share": "share of the gradients at one largest length",
    "learners_rate": "the learners' step per unit of gradient",
    "learners_momentum": "the learners' momentum",
    "learners_decay": "the learners' weight decay",
    "unexplored_share": "share of exp(βR̂) where no learner was",
    "rhat": "whether the chains of samples agree; below 1.01 they do",
    "ess": "effective number of independent samples",
    "sampling_mismatch": "mismatch between the samples and R̂; should be at most 0.1",
    "unresolved_share": "of the samples, from cells too coarse for them",
    "fit_seconds": "time of the fit",
    "draw_seconds": "time of the sampling",
    "kernel_ess": "effective number of observations under a kernel",
    "bandwidth": "Δ of the kernel",
    "step_size": "μ of the chains",
    "effective_observations": "equivalent number of equally weighted observations",
    "jumps": "number of jumps of the reward",
    "order": "cosines along each axis",
    "length": "length scale of the prior, in half-widths of the box",
    "scale": "variance of the prior, in units of the gradients'",
    "prior": "kernel of the prior",
    "units": "number of functions of one direction in the fit",
    "candidates": "number of fits that R̂ is the mean of",
    "directions": "number of directions in which R̂ is more than a quadratic with functions of single coordinates",
    "directions_from": "how these directions were looked for",
    "misfit": "what the fit leaves, over its chance level: above 1 it lacks something",
    "steep_weights": "growth of squared errors with the squared slope, by which steep rows are weighted down",
    "variant": "variant of the kernel regression",
    "bandwidth_used": "mean Δ used: widened where there are few neighbours",
    "kernel_weight": "mean weight of an observation for a chain",
    "nearest_distance": "mean distance from a chain to the nearest observation it was shown",
    "projected_share": "share of steps that ended outside and were projected back",
    "outside_share": "share of observations outside the grid",
    "lost_chains": "number of chains that diverged and were left out",
    "chain_steps_per_second": "speed of the chains",
    "memory_numbers": "number of values in memory",
    "chains": "number of chains of samples",
    "coordinates": "coordinates of policies that the points are",
    "measure": "measure that the samples' density refers to",
}
STYLE = """
body { font-family: system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.lead { font-size: 1.05rem; } .quiet { color: #555; }
.warning { background: #fef2f2; border-left: 4px solid #b91c1c; padding: .5rem 1rem; }
.calm { background: #f0fdf4; border-left: 4px solid #15803d; padding: .5rem 1rem; }
table { border-collapse: collapse; font-size: .92rem; } th, td { text-align: left; padding: .25rem .8rem .25rem 0; }
tr { border-bottom: 1px solid #e5e7eb; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
.within { color: #15803d; } .outside { color: #b91c1c; font-weight: 600; }
figure { margin: 1rem 0; } img { max-width: 100%; } figcaption { color: #555; font-size: .9rem; }
pre { background: #f3f4f6; padding: .8rem; overflow-x: auto; }
"""
ALONE = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Picture(NamedTuple):
    """An encoded image, with its media type and caption."""

    caption: str
    kind: str
    content: bytes


class Cell(NamedTuple):
    """A cell of a table, with its CSS class."""

    text: str
    looks: str = ""


class Table(NamedTuple):
    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Attributes
    ----------
    title
        Heading.
    lead
        One paragraph with the outcome.
    warnings
        Texts of the warnings.
    pictures
        Figures, in order.
    tables
        Tables, in order.
    commands
        Commands that reproduce the result.
    """

    title: str
    lead: str
    warnings: list[str]
    pictures: list[Picture] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


def write_report(result: Any, out: Any = None) -> Path:
    """Write a report of a result as one HTML file, atomically; returns its path.

    Parameters
    ----------
    result
        A folder that `onlooker reconstruct` wrote, or that a Reconstruction was saved in.
    out
        The file to write; default: report.html, in the folder or beside the saved Reconstruction.
    """
    folder = Path(result)
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist; give the folder of a result.")
    if (folder / STORE).exists():
        report, parent = _of_reconstruction(folder / STORE, _summary(folder / SUMMARY)), folder
    else:
        report, parent = _of_reconstruction(folder, {}), folder.parent
    return write(report, parent / REPORT if out is None else Path(out))


def write(report: Report, path: Path) -> Path:
    """Render a report into a file, atomically."""
    if path.is_dir():
        raise ValueError(f"--out {path} is a folder; give the name of a file, such as {path / REPORT}.")
    # Invalid characters from a damaged file are escaped.
    return replace_file(path, _rendered(report).encode(errors="backslashreplace"))


def read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({in_short(error)}); run the command again.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} was not written by Onlooker; give the folder of a result.")
    return content


def _summary(path: Path) -> dict[str, Any]:
    """The origin of a result, from summary.json."""
    content = read_json(path)
    words = {name: word for name, word in content.items() if name in ("log", "source", "command", "about")}
    about = words.get("about", {})
    if not isinstance(about, dict) or not all(isinstance(word, str) for name, word in words.items() if name != "about"):
        raise ValueError(f"{path} was not written by Onlooker: its log, command or about is not text.")
    return words


def _of_reconstruction(store: Path, summary: dict[str, Any]) -> Report:
    result = load(store)
    summit = result.summit() if result.fitted.known else None
    dimensions = "one dimension" if result.dim == 1 else f"{result.dim} dimensions"
    name = summary.get("log", summary.get("source", ""))
    seen = f"{result.diagnostics.get('observations', 0):,} observations" + (f" of {name}" if name else "")
    known = result.diagnostics.get("effective_observations")
    if known is not None:
        seen += f", which are worth {known:,.0f} equally weighted ones,"
    lead = f"Reconstructed from {seen} in {dimensions} by method {result.method}."
    if summit is not None:
        lead += f" R̂ is highest at ({_point(summit)})."
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
        warnings=[str(message) for message in result.warnings],
        pictures=_pictures(result),
        tables=[
            _numbers(result.diagnostics),
            Table("Settings", ("", ""), [(Cell(name), Cell(word)) for name, word in settings.items()]),
        ],
        commands=[summary.get("command", made)],
    )


def _pictures(result: Reconstruction) -> list[Picture]:
    pictures = []
    if result.fitted.known:
        caption = "The reconstructed reward R̂, up to a constant" + (", through its summit." if result.dim > 2 else ".")
        pictures.append(_drawn(caption, result.landscape()))
        if result.dim == 2 and result.fitted.has_error:
            pictures.append(
                _drawn("R̂ along each coordinate, through its summit, ± 2 standard errors.", result.curves())
            )
    what = "Samples of exp(βR̂), on βR̂ below its maximum." if result.dim == 2 else "Chains that sample exp(βR̂)."
    return [*pictures, _drawn(what, result.plot())]


def _drawn(caption: str, figure: "Figure") -> Picture:
    content = io.BytesIO()
    figure.savefig(content, dpi=110, format="png")
    return Picture(caption, KINDS[".png"], content.getvalue())


def _numbers(diagnostics: dict[str, Any]) -> Table:
    rows = [
        (Cell(name.replace("_", " ")), Cell(short(value), "number"), Cell(MEANING.get(name, ""), "quiet"))
        for name, value in diagnostics.items()
    ]
    return Table("Diagnostics", ("", "", ""), rows)


def _point(point: np.ndarray) -> str:
    more = ", …" if len(point) > MOST_COORDINATES else ""
    return ", ".join(f"{number:.3g}" for number in point[:MOST_COORDINATES]) + more


def short(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    text = f"{value:.5g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …"


def _rendered(report: Report) -> str:
    escape = html.escape
    warnings = "".join(f"<li>{escape(warning)}</li>" for warning in report.warnings)
    first = (
        f'<div class="warning"><b>Read this first</b><ul>{warnings}</ul></div>'
        if warnings
        else '<div class="calm">No warnings.</div>'
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
        f"<h2>How to reproduce it</h2><pre>{escape(chr(10).join(report.commands))}</pre>"
        f'<p class="quiet">{escape(made)}, Python {platform.python_version()}.</p></body></html>\n'
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns) if any(table.columns) else ""
    body = "".join(
        "<tr>" + "".join(f'<td class="{cell.looks}">{html.escape(cell.text)}</td>' for cell in row) + "</tr>"
        for row in table.rows
    )
    return f"<h2>{html.escape(table.heading)}</h2><table><tr>{head}</tr>{body}</table>"
