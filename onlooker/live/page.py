"""The page: a map of R̂ or its curve, R̂(t), the numbers behind them, and what to doubt.

Every browser has a page of its own, with its own choice of coordinates and its own pause; all of them show the same
`Watch`. A page asks for what it needs four times a second; what has not changed is not sent again.
"""

import asyncio
import html
from dataclasses import dataclass

import numpy as np
from bokeh.document import Document
from bokeh.events import ConnectionLost
from bokeh.layouts import column, row
from bokeh.models import CustomJS, Div, Select, Toggle

from onlooker.live.panels import CurvePanel, IntervalPanel, MapPanel, StripPanel, named
from onlooker.live.picture import Curve, Intervals, Map, Strip, curve_along, intervals, map_of
from onlooker.live.watch import Look, Status, Watch

__all__ = ["Page"]

# Milliseconds between two updates.
EVERY = 250
# Points of learners that are shown, and jumps that are told of.
POINTS = 400
TOLD = 4
REWARD, ERROR = "reward R̂", "its standard error"
STYLE = """
:host { font-family: system-ui, sans-serif; color: #222; }
h1 { font-size: 24px; margin: 0 0 2px 0; }
p { margin: 3px 0; font-size: 14px; }
li { font-size: 14px; }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; }
.tile { background: #f3f4f6; border-radius: 6px; padding: 6px 14px; }
.tile b { display: block; font-size: 20px; font-weight: 600; }
.tile span { font-size: 13px; color: #555; }
.good { color: #15803d; font-weight: 600; } .bad { color: #b91c1c; font-weight: 600; } .quiet { color: #555; }
ul { margin: 4px 0; padding-left: 20px; }
a { color: #1f5fa8; margin-right: 14px; font-size: 14px; }
"""
STOPPED = "The onlooker has stopped or cannot be reached. What it showed last stays here."


@dataclass(frozen=True)
class Drawing:
    """Pictures of one look, for one choice of coordinates."""

    map: Map | None
    truth: Map | None
    curve: Curve
    strip: Strip | None
    intervals: Intervals | None


class Page:
    """One browser's view of a watch.

    Parameters
    ----------
    watch
        What is shown.
    document
        Where.
    """

    def __init__(self, watch: Watch, document: Document) -> None:
        self._watch = watch
        self._heading, self._numbers, self._doubts = (
            Div(stylesheets=[STYLE], sizing_mode="stretch_width", name=name)
            for name in ("heading", "numbers", "doubts")
        )
        self._body = column(Div(), sizing_mode="stretch_width")
        self._controls: Controls | None = None
        self._drawn: tuple[int, tuple[int, int], bool] | None = None
        self._pointed: tuple[int, tuple[int, int]] | None = None
        self._paused_at = 0
        document.title = "Onlooker"
        document.add_root(
            column(self._heading, self._numbers, self._body, self._doubts, sizing_mode="stretch_width", margin=14)
        )
        document.js_on_event(
            ConnectionLost,
            CustomJS(
                args={"heading": self._heading},
                code=f"heading.text = `<h1>What do they want?</h1><p class='bad'>{STOPPED}</p>`",
            ),
        )
        self._say(watch.status(), None)
        document.add_periodic_callback(self._update, EVERY)

    async def _update(self) -> None:
        status, look, controls = self._watch.status(), self._watch.look, self._controls
        if controls is not None and controls.pause.active:
            self._say_paused(status)
            return
        self._paused_at = status.seen
        self._say(status, look)
        if look is None or self._watch.observer is None:
            return
        if controls is None:
            truth = self._watch.source.truth(look.seen)
            controls = self._controls = Controls(look.result.dim, known_truth=truth is not None)
            self._body.children = [controls.layout]
        recent = self._watch.observer.recent(POINTS)
        if (status.seen, controls.pair) != self._pointed:
            controls.show_points(recent)
            self._pointed = status.seen, controls.pair
        chosen = (look.number, controls.pair, controls.errors)
        if chosen != self._drawn:
            # Beside the loop that serves all pages.
            work = asyncio.get_running_loop().run_in_executor(None, self._draw, look, *chosen[1:], recent)
            controls.show(await work, *chosen[1:], look, status)
            self._drawn = chosen

    def _draw(self, look: Look, pair: tuple[int, int], errors: bool, recent: np.ndarray) -> Drawing:
        result, box, summit = look.result, look.box, look.summit
        drawn = None if result.dim == 1 else map_of(result, pair, box, summit, errors)
        truth = self._watch.source.truth(look.seen)
        real = None
        if truth is not None and drawn is not None and not errors:
            places = np.stack(np.meshgrid(drawn.horizontal, drawn.vertical), axis=-1).reshape(-1, 2)[:, list(pair)]
            real = drawn._replace(values=truth(places).reshape(drawn.values.shape))
        marginals = intervals(result.samples.reshape(-1, result.dim), recent) if result.dim > 2 else None
        strip = self._watch.history.strip(pair[0])
        return Drawing(drawn, real, curve_along(result, pair[0], box, summit), strip, marginals)

    def _say(self, status: Status, look: Look | None) -> None:
        if status.over:
            state = '<span class="quiet">all that came was seen</span>'
        elif look is None:
            state = '<span class="quiet">not enough was seen yet</span>'
        else:
            state = '<span class="good">live</span>'
        self._heading.text = self._headed(status, state)
        self._numbers.text = _numbers(status, look)
        self._doubts.text = _jumps(status) + _doubts(look, self._watch.source.notes)

    def _say_paused(self, status: Status) -> None:
        since = status.seen - self._paused_at
        self._heading.text = self._headed(
            status,
            f'<span class="bad">paused</span> at observation {self._paused_at:,}; {since:,} more have come since',
        )

    def _headed(self, status: Status, state: str) -> str:
        tone = "quiet" if status.over else "bad"
        message = f'<p class="{tone}">{html.escape(status.message)}</p>' if status.message else ""
        name = html.escape(self._watch.source.name)
        return f"<h1>What do they want?</h1><p>Onlooker watches {name}: {state}</p>{message}"


class Controls:
    """What a user can set, and the figures it is for; of a reward of so many dimensions."""

    def __init__(self, dim: int, known_truth: bool) -> None:
        self.pause = Toggle(label="Pause", name="pause", width=90, align="end")
        self.pause.js_on_change("active", CustomJS(code="this.label = this.active ? 'Go on' : 'Pause'"))
        names = [(str(axis), named(axis)) for axis in range(dim)]
        self._across = Select(title="across", options=names, value="0", name="across", width=100)
        self._upwards = Select(title="upwards", options=names, value=str(min(1, dim - 1)), name="upwards", width=100)
        self._shown = Select(title="on the map", options=[REWARD, ERROR], value=REWARD, name="shown", width=170)
        self._across.on_change("value", lambda attribute, old, new: _swap(self._upwards, old, new))
        self._upwards.on_change("value", lambda attribute, old, new: _swap(self._across, old, new))
        self._map = MapPanel(known_truth) if dim > 1 else None
        self._curve = CurvePanel(alone=dim == 1)
        self._strip = StripPanel()
        self._intervals = IntervalPanel() if dim > 2 else None
        downloads = Div(
            text='<p class="quiet">download, as it is now</p><a href="estimate.zip" download>estimate (.zip)</a>'
            '<a href="picture.png" download>picture (.png)</a>',
            stylesheets=[STYLE],
            name="downloads",
            align="end",
        )
        choices = [self._across, self._upwards, self._shown] if dim > 1 else []
        sides: list[list[CurvePanel | IntervalPanel | MapPanel | StripPanel]]
        if self._map is None:
            sides = [[self._curve], [self._strip]]
        elif self._intervals is None:
            sides = [[self._map], [self._strip, self._curve]]
        else:
            sides = [[self._map, self._intervals], [self._strip, self._curve]]
        self.layout = column(
            row(self.pause, *choices, downloads, spacing=12),
            row(*(column(*(panel.figure for panel in side)) for side in sides), spacing=8),
            sizing_mode="stretch_width",
        )

    @property
    def pair(self) -> tuple[int, int]:
        return int(self._across.value), int(self._upwards.value)

    @property
    def errors(self) -> bool:
        return self._shown.value == ERROR

    def show_points(self, points: np.ndarray) -> None:
        if self._map is not None:
            self._map.show_points(points, self.pair)
        self._curve.show_points(points, self.pair[0])

    def show(self, drawing: Drawing, pair: tuple[int, int], errors: bool, look: Look, status: Status) -> None:
        if self._map is not None and drawing.map is not None:
            self._map.show(drawing.map, drawing.truth, pair, look, errors)
        self._curve.show(drawing.curve, pair[0], float(look.summit[pair[0]]))
        if drawing.strip is not None:
            self._strip.show(drawing.strip, status.jumps, pair[0])
        if self._intervals is not None and drawing.intervals is not None:
            self._intervals.show(drawing.intervals, look.summit)


def _swap(other: Select, old: str, new: str) -> None:
    """An axis that is given the other's coordinate gives it its own."""
    if other.value == new:
        other.value = old


def _numbers(status: Status, look: Look | None) -> str:
    tiles = [
        (f"{status.seen:,}", "observations"),
        (f"{status.rate:,.0f}", "a second"),
        (f"{status.effective:,.0f}", "are what R̂ is worth"),
    ]
    if look is not None:
        tiles += [
            (f"{look.crowd:,.0f}", "kernel ESS at the summit"),
            (f"{look.coverage:.0%}", "coverage of exp(R̂)"),
            (f"{status.looks_rate:.1f}", "pictures a second"),
        ]
    tiles.append((f"{len(status.jumps)}", "jumps of the reward"))
    if status.refused:
        tiles.append((f"{status.refused:,}", "refused: not finite"))
    return (
        '<div class="tiles">'
        + "".join(f"<div class=tile><b>{n}</b><span>{w}</span></div>" for n, w in tiles)
        + "</div>"
    )


def _jumps(status: Status) -> str:
    if not status.jumps:
        return ""
    told = [
        f"<li>the reward jumped at observation {jump.at:,}, noticed {jump.found - jump.at:,} later</li>"
        for jump in reversed(status.jumps[-TOLD:])
    ]
    return f'<ul name="jumps">{"".join(told)}</ul>'


def _doubts(look: Look | None, notes: list[str]) -> str:
    if look is None:
        return ""
    doubts = [*notes, *look.result.warnings]
    if not doubts:
        return '<p class="quiet">Nothing to doubt.</p>'
    return (
        '<p class="bad">Read this first:</p><ul>' + "".join(f"<li>{html.escape(one)}</li>" for one in doubts) + "</ul>"
    )
