"""The figures of the page, one class each: layout, and how new data is shown."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from bokeh.models import (
    ColorBar,
    ColumnDataSource,
    HoverTool,
    Legend,
    LegendItem,
    LinearColorMapper,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.plotting import figure
from bokeh.plotting.contour import contour_data

from onlooker.fit.jumps.statistic import Jump
from onlooker.live.page.picture import MOST_STRIPS, Curve, Intervals, Map, Strip
from onlooker.live.page.watch import Look

__all__ = ["CurvePanel", "IntervalPanel", "MapPanel", "StripPanel"]

# Number of contour lines on a map.
LEVELS = 10
# Share of the values beyond the end of the colour scale, so that a few extremes do not use it up.
DARKEST = 0.02
# Share of a curve that may lie below its figure, so that a steep end does not flatten the rest.
STEEP = 0.05
PALETTE, NOWHERE = "Magma256", "#ffffff"
BLUE, RED, GREY, POINT, TRUTH = "#1f77b4", "#d62728", "#777777", "#00c2d7", "#7CFC00"
TOOLS = "pan,box_zoom,wheel_zoom,reset,save"


class _Panel:
    """A figure whose axes change only if the range of its data does, so that a user's zoom is kept."""

    def __init__(self, name: str, width: int, height: int) -> None:
        self.figure = figure(
            name=name, width=width, height=height, x_range=Range1d(0, 1), y_range=Range1d(0, 1), tools=TOOLS
        )
        self.figure.toolbar.logo = None
        self._view: tuple[float, ...] = ()

    def _show_view(self, across: Iterable[float], upwards: Iterable[float]) -> None:
        wanted = (*map(float, across), *map(float, upwards))
        if wanted != self._view:
            self._view = wanted
            for axis, start, end in ((self.figure.x_range, *wanted[:2]), (self.figure.y_range, *wanted[2:])):
                axis.update(start=start, end=end, reset_start=start, reset_end=end)

    def _show_names(self, title: str, across: str, upwards: str) -> None:
        self.figure.title.text = title
        self.figure.xaxis.axis_label, self.figure.yaxis.axis_label = across, upwards

    def _legend_below(self, **renderers: Any) -> None:
        """Add a legend; a click on an entry hides what it names."""
        items = [LegendItem(label=label.replace("_", " "), renderers=[glyph]) for label, glyph in renderers.items()]
        self.figure.add_layout(
            Legend(
                items=items, orientation="horizontal", location="center", border_line_color=None, margin=0, padding=2
            ),
            "below",
        )
        self.figure.legend.click_policy = "hide"


class MapPanel(_Panel):
    """R̂, or its standard error, over two coordinates, with contours and the latest points of the learners."""

    def __init__(self, coordinates: list[str], known_truth: bool) -> None:
        super().__init__("map", 640, 600)
        self._coordinates = coordinates
        self._colours = LinearColorMapper(PALETTE, low=-1, high=0, nan_color=NOWHERE)
        self._image, raster = _image(self.figure, self._colours)
        self._lines, self._truth = (ColumnDataSource({"xs": [], "ys": []}) for _ in range(2))
        self._points, self._summit = (ColumnDataSource({"x": [], "y": []}, name=name) for name in ("points", "summit"))
        shown = {}
        self.figure.multi_line("xs", "ys", source=self._lines, color="white", line_width=0.8, alpha=0.7)
        if known_truth:
            shown["true_reward"] = self.figure.multi_line(
                "xs", "ys", source=self._truth, color=TRUTH, line_width=1.2, line_dash="dashed"
            )
        shown["latest_points_of_learners"] = self.figure.scatter(
            "x", "y", source=self._points, size=4, color=POINT, line_color="#333", line_width=0.3
        )
        shown["summit_of_R̂"] = self.figure.scatter(
            "x", "y", source=self._summit, marker="cross", size=18, line_width=3, color=BLUE
        )
        self._legend_below(**shown)
        self._bar = ColorBar(color_mapper=self._colours, title="R̂ − max R̂", width=14)
        self.figure.add_layout(self._bar, "right")
        tooltips = [("at", "($x, $y)"), ("value", "@image{0.000}")]
        self.figure.add_tools(HoverTool(renderers=[raster], tooltips=tooltips, point_policy="follow_mouse"))

    def show(self, drawn: Map, truth: Map | None, pair: tuple[int, int], look: Look, errors: bool) -> None:
        low, high = _limits(drawn.values, errors)
        self._colours.update(low=low, high=high)
        self._bar.title = "standard error" if errors else "R̂ − max R̂"
        self._show_view(drawn.horizontal[[0, -1]], drawn.vertical[[0, -1]])
        self._image.data = _cells(drawn)
        levels = np.linspace(low, high, LEVELS + 2)[1:-1]
        self._lines.data = _contours(drawn, levels)
        if truth is not None:
            self._truth.data = _contours(truth._replace(values=truth.values - truth.values.max()), levels[::2])
        self._summit.data = {"x": look.summit[[pair[0]]], "y": look.summit[[pair[1]]]}
        what = "standard error of R̂" if errors else "reconstructed reward"
        title = f"{what} after {look.seen:,} observations (white: unexplored)"
        self._show_names(title, *(self._coordinates[axis] for axis in pair))

    def show_points(self, points: np.ndarray, pair: tuple[int, int]) -> None:
        """Show the latest points of the learners."""
        self._points.data = {"x": points[:, pair[0]], "y": points[:, pair[1]]}


class CurvePanel(_Panel):
    """R̂ ± 2 standard errors along a coordinate, through the summit; in 1-D also the latest points of the learners."""

    def __init__(self, coordinates: list[str]) -> None:
        alone = self._alone = len(coordinates) == 1
        super().__init__("curve", *((700, 560) if alone else (620, 290)))
        self._coordinates = coordinates
        self._curve = ColumnDataSource({"x": [], "y": [], "low": [], "high": [], "width": []})
        name = "points" if alone else None
        self._points, self._summit = ColumnDataSource({"x": [], "y": []}, name=name), ColumnDataSource({"x": []})
        # Bars instead of an area, because the curve has gaps where no learner was.
        band = self.figure.vbar("x", "width", "high", "low", source=self._curve, color=BLUE, alpha=0.25, line_width=0)
        shown = {"±_2_standard_errors": band}
        shown["R̂"] = self.figure.line("x", "y", source=self._curve, color=BLUE, line_width=2)
        shown["summit_of_R̂"] = self.figure.vspan("x", source=self._summit, color=GREY, line_dash="dotted")
        if alone:
            shown["latest_points_of_learners"] = self.figure.scatter(
                "x", "y", source=self._points, size=5, color=POINT, alpha=0.5
            )
        self._legend_below(**shown)

    def show(self, drawn: Curve, axis: int, summit: float) -> None:
        along, values, errors = drawn
        ends = {"low": values - 2 * errors, "high": values + 2 * errors}
        self._curve.data = {"x": along, "y": values, "width": np.full(len(along), along[1] - along[0]), **ends}
        known = values[np.isfinite(values)]
        if len(known):
            low, high = np.quantile(known, STEEP), known.max()
            room = 0.1 * max(high - low, 1e-9)
            self._show_view(along[[0, -1]], (low - room, high + room))
        self._summit.data = {"x": [summit]}
        name = self._coordinates[axis]
        title = "reconstructed reward" if self._alone else f"R̂ along {name}, through the summit"
        self._show_names(title, name, "R̂ − max R̂")

    def show_points(self, points: np.ndarray, axis: int) -> None:
        """Show the latest points of the learners."""
        if self._alone:
            bottom, top = self.figure.y_range.start, self.figure.y_range.end
            self._points.data = {"x": points[:, axis], "y": np.full(len(points), bottom + 0.015 * (top - bottom))}


class StripPanel(_Panel):
    """R̂ over time: each column is R̂ along one coordinate at one time. Lines mark jumps of the reward."""

    def __init__(self, coordinates: list[str]) -> None:
        super().__init__("timeline", 620, 290)
        self._coordinates = coordinates
        self._colours = LinearColorMapper(PALETTE, low=-1, high=0, nan_color=NOWHERE)
        self._image, _ = _image(self.figure, self._colours)
        self._summits, self._jumps = ColumnDataSource({"x": [], "y": []}), ColumnDataSource({"x": []}, name="jumps")
        summits = self.figure.line("x", "y", source=self._summits, color=BLUE, line_width=1.5)
        jumps = self.figure.vspan("x", source=self._jumps, color=RED, line_width=2)
        self._legend_below(summit_of_R̂=summits, jump_of_the_reward=jumps)
        self.figure.add_layout(ColorBar(color_mapper=self._colours, width=10), "right")
        self.figure.xaxis.formatter = NumeralTickFormatter(format="0,0")
        self.figure.xaxis.ticker.desired_num_ticks = 5

    def show(self, drawn: Strip, jumps: list[Jump], axis: int) -> None:
        low, high = _limits(drawn.values, errors=False)
        self._colours.update(low=low, high=high)
        self._show_view(drawn.observations, drawn.places)
        (first, last), (bottom, top) = drawn.observations, drawn.places
        corner = {"x": [first], "y": [bottom], "dw": [last - first], "dh": [top - bottom]}
        self._image.data = {"image": [drawn.values.astype(np.float32)], **corner}
        self._summits.data = {"x": drawn.moments, "y": drawn.summits}
        self._jumps.data = {"x": [jump.at for jump in jumps]}
        name = self._coordinates[axis]
        kept = axis < MOST_STRIPS
        title = (
            f"R̂ over time, along {name}, through the summit"
            if kept
            else f"{name} of the summit over time (R̂ is kept for {MOST_STRIPS} coordinates only)"
        )
        self._show_names(title, "observations", name)


class IntervalPanel(_Panel):
    """Marginals in many dimensions: 5 to 95 % of exp(R̂), relative to the points of the learners."""

    def __init__(self) -> None:
        super().__init__("marginals", 640, 260)
        self._seen = ColumnDataSource({"x": [], "low": [], "high": []})
        self._found = ColumnDataSource({"x": [], "low": [], "high": [], "summit": []})
        seen = self.figure.segment("x", "low", "x", "high", source=self._seen, color="#cccccc", line_width=9)
        found = self.figure.segment("x", "low", "x", "high", source=self._found, color=BLUE, line_width=3)
        summit = self.figure.scatter("x", "summit", source=self._found, color=RED, size=6)
        self._legend_below(**{"points_of_learners": seen, "exp(R̂)": found, "summit_of_R̂": summit})
        self._show_names("marginals, 5 % to 95 %", "coordinate", "learners' 5 % to 95 % is −1 to 1")

    def show(self, drawn: Intervals, summit: np.ndarray) -> None:
        numbers = drawn.coordinates + 1
        middle, half = drawn.seen.mean(axis=0), np.ptp(drawn.seen, axis=0) / 2
        half = np.where(half > 0, half, 1.0)
        low, high = (drawn.found - middle) / half
        place = (summit[drawn.coordinates] - middle) / half
        self._seen.data = {"x": numbers, "low": np.full(len(numbers), -1.0), "high": np.ones(len(numbers))}
        self._found.data = {"x": numbers, "low": low, "high": high, "summit": place}
        # Rounded, so that the axes do not move with every update.
        ends = np.floor(min(low.min(), place.min(), -1) - 0.1), np.ceil(max(high.max(), place.max(), 1) + 0.1)
        self._show_view((numbers[0] - 0.6, numbers[-1] + 0.6), ends)


def _image(drawn: figure, colours: LinearColorMapper) -> tuple[ColumnDataSource, Any]:
    nothing = np.full((2, 2), np.nan, np.float32)
    source = ColumnDataSource({"image": [nothing], "x": [0], "y": [0], "dw": [1], "dh": [1]})
    return source, drawn.image("image", "x", "y", "dw", "dh", source=source, color_mapper=colours)


def _cells(drawn: Map) -> dict[str, list[Any]]:
    """The values of a map as image cells centred on its grid points."""
    data: dict[str, list[Any]] = {"image": [drawn.values.astype(np.float32)]}
    for start, size, places in (("x", "dw", drawn.horizontal), ("y", "dh", drawn.vertical)):
        step = places[1] - places[0]
        data |= {start: [places[0] - step / 2], size: [places[-1] - places[0] + step]}
    return data


def _contours(drawn: Map, levels: np.ndarray) -> dict[str, Any]:
    lines = contour_data(drawn.horizontal, drawn.vertical, drawn.values, levels, want_fill=False).line_data
    return {"xs": [], "ys": []} if lines is None else {"xs": list(lines.xs), "ys": list(lines.ys)}


def _limits(values: np.ndarray, errors: bool) -> tuple[float, float]:
    """Ends of the colour scale: from a negative value to zero or, for errors, from zero to a positive one."""
    known = values[np.isfinite(values)]
    if not len(known):
        return -1.0, 0.0
    if errors:
        return 0.0, max(float(np.quantile(known, 1 - DARKEST)), 1e-12)
    return min(float(np.quantile(known, DARKEST)), -1e-12), 0.0
