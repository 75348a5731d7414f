"""The page: R̂ as a map or a curve, R̂ over time, numbers, and warnings.

Every browser has its own page, with its own choice of coordinates and its own pause; all of them show the same `Watch`.
A page updates itself four times a second and sends only what has changed.
"""

import html
from dataclasses import dataclass

import numpy as np
from bokeh.document import Document
from bokeh.events import ConnectionLost
from bokeh.layouts import column, row
from bokeh.models import CustomJS, Div, Select, Toggle

from onlooker.core.messages import Message
from onlooker.live.page.background import beside
from onlooker.live.page.panels import CurvePanel, IntervalPanel, MapPanel, StripPanel
from onlooker.live.page.picture import Curve, Intervals, Map, Strip, curve_along, intervals, map_of
from onlooker.live.page.watch import RATE_OVER, VIEWED, Look, Status, Watch, jump_in_words

__all__ = ["Page"]

# Milliseconds between two updates.
EVERY = 250
# Number of points of learners that are shown, drawn from the latest ones: more would hide the map.
POINTS, LATELY = 400, 2000
# Number of jumps that are listed.
TOLD = 4
# Seconds without a row after which the page says so: twice the interval in which a recorder writes.
IDLE = 10.0
TITLE = "What reward do these learners maximise?"
REWARD, ERROR = "reward R̂", "standard error of R̂"
STYLE = """
:host { font-family: system-ui, sans-serif; color: #222; }
h1 { font-size: 24px; margin: 0 0 2px 0; }
p { margin: 3px 0; font-size: 14px; }
li { font-size: 14px; }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; }
.tile { background: #f3f4f6; border-radius: 6px; padding: 6px 14px; }
.tile b { display: block; font-size: 20px; font-weight: 600; }
.tile span { font-size: 13px; color: #555; }
.good { color: #15803d; font-weight: 600; } .held { color: #b45309; font-weight: 600; }
.bad { color: #b91c1c; font-weight: 600; } .quiet { color: #555; }
ul { margin: 4px 0; padding-left: 20px; }
a { color: #1f5fa8; margin-right: 14px; font-size: 14px; }
"""
MEANING = (
    '<p class="quiet">R̂ is the reconstructed reward, up to a constant. Learners that minimise a loss maximise '
    "R = −loss. The summit is the point with the highest R̂ in the region that learners have visited.</p>"
)
STOPPED = "Onlooker has stopped or cannot be reached. This page shows its last estimate."


@dataclass(frozen=True)
class Drawing:
    """The data of all figures, for one look and one choice of coordinates.

    Attributes
    ----------
    map
        R̂ or its standard error over two coordinates; None in one dimension.
    truth
        The true reward on the same grid; None if it is unknown or standard errors are shown.
    curve
        R̂ along the horizontal coordinate.
    strip
        R̂ over time along the same coordinate; None before the first look.
    intervals
        Quantiles of the coordinates; None in up to two dimensions.
    """

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
        The watch that is shown.
    document
        The Bokeh document of this browser.
    """

    def __init__(self, watch: Watch, document: Document) -> None:
        self._watch = watch
        self._heading, self._numbers, self._warnings, self._jumps = (
            Div(stylesheets=[STYLE], sizing_mode="stretch_width", name=name)
            for name in ("heading", "numbers", "warnings", "told")
        )
        self._body = column(Div(), sizing_mode="stretch_width")
        self._controls: Controls | None = None
        # The look and the points that are shown; they do not change while the page is paused.
        self._look: Look | None = None
        self._points = np.zeros((0, 1))
        self._drawn: tuple[int, tuple[int, int], bool] | None = None
        self._pointed: tuple[int, tuple[int, int]] | None = None
        self._seen = 0
        document.title = "Onlooker"
        parts = (self._heading, self._numbers, self._warnings, self._body, self._jumps)
        document.add_root(column(*parts, sizing_mode="stretch_width", margin=14))
        document.config.notify_connection_status = False
        document.js_on_event(
            ConnectionLost,
            CustomJS(
                args={"heading": self._heading},
                code=f"heading.text = `<h1>{TITLE}</h1><p class='bad'>{STOPPED}</p>`",
            ),
        )
        self._say(watch.status())
        document.add_periodic_callback(self._update, EVERY)

    async def _update(self) -> None:
        status, paused = self._watch.status(), self._controls is not None and self._controls.pause.active
        if paused:
            self._say_paused(status)
        else:
            observer, self._look, self._seen = self._watch.observer, self._watch.look or self._look, status.seen
            self._say(status)
            if observer is not None and self._look is not None and observer.dim == self._look.result.dim:
                self._points = _some(observer.recent(LATELY))
        if self._look is not None:
            await self._show(self._look, status)

    async def _show(self, look: Look, status: Status) -> None:
        """Redraw what has changed, either the data or the user's choices."""
        controls, dim = self._controls, look.result.dim
        if controls is None or controls.dim != dim:
            truth = self._watch.source.truth(look.seen)
            names = [self._watch.source.coordinate(axis) for axis in range(dim)]
            controls = self._controls = Controls(names, known_truth=truth is not None)
            self._body.children = [controls.layout]
        if (self._seen, controls.pair) != self._pointed:
            controls.show_points(self._points)
            self._pointed = self._seen, controls.pair
        pair, errors = controls.pair, controls.errors
        if (look.number, pair, errors) != self._drawn:
            drawing = await beside(self._draw, look, pair, errors)
            controls.show(drawing, pair, errors, look, status)
            self._drawn = look.number, pair, errors

    def _draw(self, look: Look, pair: tuple[int, int], errors: bool) -> Drawing:
        result, box, summit = look.result, look.box, look.summit
        drawn = None if result.dim == 1 else map_of(result, pair, box, summit, errors)
        truth = self._watch.source.truth(look.seen)
        real = None
        if truth is not None and drawn is not None and not errors:
            places = np.stack(np.meshgrid(drawn.horizontal, drawn.vertical), axis=-1).reshape(-1, 2)[:, list(pair)]
            real = drawn._replace(values=truth(places).reshape(drawn.values.shape))
        samples = result.samples.reshape(-1, result.dim) if result.dim > 2 else np.zeros((0, 1))
        marginals = intervals(samples, self._points) if len(samples) else None
        strip = self._watch.history.strip(pair[0])
        return Drawing(drawn, real, curve_along(result, pair[0], box, summit), strip, marginals)

    def _say(self, status: Status) -> None:
        look = self._watch.look
        if status.failed:
            state = '<span class="bad">stopped</span>'
        elif status.over:
            state = '<span class="quiet">finished</span>' + ("" if look else ", without an estimate of the reward")
        elif status.seen == 0:
            state = '<span class="quiet">waiting for the first rows</span>'
        elif look is None and not status.waiting_for:
            state = '<span class="quiet">computing the first estimate</span>'
        elif status.idle > IDLE:
            state = f'<span class="quiet">no new rows for {status.idle:,.0f} s</span>'
        else:
            state = '<span class="good">live</span>'
        self._heading.text = self._headed(status, state)
        self._numbers.text = _numbers(status, look)
        self._warnings.text = _warnings(look, self._watch.warnings)
        self._jumps.text = _jumps(status) + MEANING

    def _say_paused(self, status: Status) -> None:
        since = status.seen - self._seen
        state = f'<span class="held">paused</span> at observation {self._seen:,}; {since:,} more have arrived since'
        self._heading.text = self._headed(status, state)

    def _headed(self, status: Status, state: str) -> str:
        tone = "quiet" if status.over and not status.failed else "bad"
        message = f'<p class="{tone}">{html.escape(status.message)}</p>' if status.message else ""
        waiting = f'<p class="quiet">{html.escape(status.waiting_for)}</p>' if status.waiting_for else ""
        name = html.escape(self._watch.source.name)
        return f"<h1>{TITLE}</h1><p>Onlooker watches {name}: {state}</p>{message}{waiting}"


class Controls:
    """The buttons, menus and figures.

    Parameters
    ----------
    coordinates
        Names of the reward's coordinates.
    known_truth
        Whether the true reward is known and shown, too.
    """

    def __init__(self, coordinates: list[str], known_truth: bool) -> None:
        dim = self.dim = len(coordinates)
        self.pause = Toggle(label="Pause", name="pause", width=90, align="end")
        self.pause.js_on_change("active", CustomJS(code="this.label = this.active ? 'Resume' : 'Pause'"))
        names = [(str(axis), name) for axis, name in enumerate(coordinates)]
        self._across = Select(title="horizontal axis", options=names, value="0", name="across", width=110)
        second = str(min(1, dim - 1))
        self._upwards = Select(title="vertical axis", options=names, value=second, name="upwards", width=110)
        self._shown = Select(title="map shows", options=[REWARD, ERROR], value=REWARD, name="shown", width=170)
        self._across.on_change("value", lambda attribute, old, new: _swap(self._upwards, old, new))
        self._upwards.on_change("value", lambda attribute, old, new: _swap(self._across, old, new))
        self._map = MapPanel(coordinates, known_truth) if dim > 1 else None
        self._curve = CurvePanel(coordinates)
        self._strip = StripPanel(coordinates)
        self._intervals = IntervalPanel() if dim > 2 else None
        downloads = Div(
            text='<p class="quiet">Download the current R̂</p><a href="estimate.zip" download>estimate (.zip)</a>'
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


def _some(points: np.ndarray) -> np.ndarray:
    """A random choice of the points: every n-th one could belong to the same few agents."""
    if len(points) <= POINTS:
        return points
    return points[np.sort(np.random.default_rng(0).choice(len(points), POINTS, replace=False))]


def _swap(other: Select, old: str, new: str) -> None:
    """Swap the coordinates of the two axes if the user chooses the one of the other axis."""
    if other.value == new:
        other.value = old


def _numbers(status: Status, look: Look | None) -> str:
    tiles = [
        (f"{status.seen:,}", "observations", "points with gradients that were learnt from"),
        (f"{status.rate:,.0f}", "observations per second", f"average over the last {RATE_OVER:g} seconds"),
        (
            f"{status.effective:,.0f}",
            "effective observations",
            "the number of equally weighted observations that R̂ is based on; it drops after a jump of the reward, when "
            "earlier observations are forgotten",
        ),
    ]
    if look is not None:
        tiles += [
            (
                f"{look.crowd:,.0f}",
                "kernel ESS at the summit",
                f"effective number of the last {VIEWED:,} observations that lie near the summit; if it is small, R̂ is "
                "uncertain there",
            ),
            (
                f"{look.coverage:.0%}",
                "coverage of exp(R̂)",
                "share of exp(R̂) in the region that learners have visited; below 95 %, the maximum may lie outside it",
            ),
            (f"{status.looks_rate:.1f}", "estimates per second", "how often R̂ is refitted"),
        ]
    tiles.append((f"{len(status.jumps)}", "jumps of the reward", "number of times that the gradients changed for good"))
    if status.rejected:
        tiles.append(
            (f"{status.rejected:,}", "rejected observations", "observations that contain a NaN or an infinity")
        )
    shown = "".join(
        f'<div class="tile" title="{html.escape(meaning)}"><b>{number}</b><span>{words}</span></div>'
        for number, words, meaning in tiles
    )
    return f'<div class="tiles">{shown}</div>'


def _jumps(status: Status) -> str:
    told = [f"<li>{jump_in_words(jump)}</li>" for jump in reversed(status.jumps[-TOLD:])]
    return f"<ul>{''.join(told)}</ul>" if told else ""


def _warnings(look: Look | None, of_source: list[Message]) -> str:
    warnings = [*of_source, *(() if look is None else look.result.warnings)]
    if not warnings:
        return "" if look is None else '<p class="quiet">No warnings.</p>'
    listed = "".join(f"<li>{html.escape(str(message))}</li>" for message in warnings)
    return f'<p class="bad">Warnings:</p><ul>{listed}</ul>'
