"""The data that a page draws: maps, curves, intervals, and R̂ over time as a strip.

Its size is bounded, whatever the number of observations: a map has a fixed number of cells and a strip of columns.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from onlooker.inverse.reports import kernel_ess
from onlooker.reconstruction.result import Reconstruction

__all__ = [
    "Curve",
    "History",
    "Intervals",
    "Map",
    "Strip",
    "crowd_at",
    "curve_along",
    "intervals",
    "map_of",
    "view_box",
]

# Cells per axis of a map and of a map of errors, whose cells are slower to compute; points of a curve.
CELLS, ERROR_CELLS, PLACES = 72, 30, 64
# Share of the points left out at either end of an axis, and the margin added, in widths of the rest.
BEYOND, ROOM = 0.005, 0.05
# A view is kept while it is at most this many times as wide as needed, so that it does not move with every update.
LOOSE = 1.6
# Columns of a strip, and the largest number of looks in the history: beyond it, every second one is dropped.
COLUMNS, REMEMBERED = 240, 960
# Largest number of coordinates with a history, and with an interval.
MOST_STRIPS, MOST_INTERVALS = 16, 60


class Map(NamedTuple):
    """Values on a grid over two coordinates.

    Attributes
    ----------
    horizontal
        Grid points of the horizontal axis.
    vertical
        Grid points of the vertical axis.
    values
        (vertical, horizontal): the values; nan where no learner was.
    """

    horizontal: np.ndarray
    vertical: np.ndarray
    values: np.ndarray


class Curve(NamedTuple):
    """R̂ − max R̂ along a coordinate.

    Attributes
    ----------
    along
        Grid points of the coordinate.
    values
        R̂ − max R̂; nan where no learner was.
    errors
        Standard error of R̂.
    """

    along: np.ndarray
    values: np.ndarray
    errors: np.ndarray


class Intervals(NamedTuple):
    """Quantiles of coordinates.

    Attributes
    ----------
    coordinates
        Indices of the coordinates.
    found
        (2, coordinates): the 5 % and 95 % quantiles of exp(R̂).
    seen
        (2, coordinates): the same quantiles of the learners' points.
    """

    coordinates: np.ndarray
    found: np.ndarray
    seen: np.ndarray


class Strip(NamedTuple):
    """R̂ over time along a coordinate.

    Attributes
    ----------
    observations
        Range of the number of observations, from the first to the last column.
    places
        Range of the coordinate, from the first to the last row.
    values
        (places, columns): R̂ − max R̂; nan where no learner was.
    moments
        Number of observations at each look.
    summits
        The summit's coordinate at each look.
    """

    observations: tuple[float, float]
    places: tuple[float, float]
    values: np.ndarray
    moments: np.ndarray
    summits: np.ndarray


def view_box(points: np.ndarray, before: np.ndarray | None) -> np.ndarray:
    """Bounds (2, dim) of points (n, dim); the bounds from before are kept while they still fit."""
    low, high = np.quantile(points, [BEYOND, 1 - BEYOND], axis=0)
    width = np.where(high > low, high - low, 1.0)
    needed = np.stack([low - ROOM * width, high + ROOM * width])
    if before is None:
        return needed
    fits = (before[0] <= low) & (before[1] >= high) & (np.ptp(before, axis=0) <= LOOSE * np.ptp(needed, axis=0))
    return np.where(fits, before, needed)


def map_of(
    result: Reconstruction, pair: tuple[int, int], box: np.ndarray, summit: np.ndarray, errors: bool = False
) -> Map:
    """R̂ − max R̂, or the standard error of R̂, over two coordinates; the others are those of the summit."""
    cells = ERROR_CELLS if errors else CELLS
    horizontal, vertical = (_along(box, axis, cells) for axis in pair)
    places = np.tile(summit, (cells * cells, 1))
    for axis, grid in zip(pair, np.meshgrid(horizontal, vertical), strict=True):
        places[:, axis] = grid.ravel()
    values = result.reward_error(places) if errors else _below(result, places, summit)
    return Map(horizontal, vertical, values.reshape(cells, cells))


def curve_along(result: Reconstruction, axis: int, box: np.ndarray, summit: np.ndarray) -> Curve:
    """R̂ along one coordinate; the others are those of the summit."""
    places = _line(axis, box, summit)
    return Curve(places[:, axis], _below(result, places, summit), result.reward_error(places))


def _along(box: np.ndarray, axis: int, count: int) -> np.ndarray:
    return np.linspace(box[0, axis], box[1, axis], count)


def _line(axis: int, box: np.ndarray, summit: np.ndarray) -> np.ndarray:
    places = np.tile(summit, (PLACES, 1))
    places[:, axis] = _along(box, axis, PLACES)
    return places


def _below(result: Reconstruction, places: np.ndarray, summit: np.ndarray) -> np.ndarray:
    return result.reward(places) - result.reward(summit[None])


def intervals(samples: np.ndarray, points: np.ndarray) -> Intervals:
    """Intervals of samples (n, dim) and points (n, dim), for at most MOST_INTERVALS evenly chosen coordinates."""
    dim = points.shape[1]
    chosen = np.unique(np.linspace(0, dim - 1, min(dim, MOST_INTERVALS)).astype(int))
    found, seen = (np.quantile(part[:, chosen], [0.05, 0.95], axis=0) for part in (samples, points))
    return Intervals(chosen, found, seen)


def crowd_at(place: np.ndarray, points: np.ndarray) -> float:
    """Kernel ESS (Σw)²/Σw² at a place: the effective number of the points (n, dim) near it.

    w is a Gaussian kernel with the bandwidth of Scott's rule, n^(−1/(dim + 4)) standard deviations.
    """
    count, dim = points.shape
    bandwidth = points.std(axis=0) * count ** (-1 / (dim + 4))
    distance = np.sum(((points - place) / np.where(bandwidth > 0, bandwidth, 1.0)) ** 2, axis=1)
    weight = np.exp(-0.5 * (distance - distance.min()))
    return kernel_ess(np.array([weight.sum()]), np.array([(weight**2).sum()]))


class Moment(NamedTuple):
    """R̂ at one look.

    Attributes
    ----------
    seen
        Number of observations at that time.
    box
        (2, dim): bounds of the figures.
    summit
        (dim,): the summit.
    curves
        R̂ − max R̂ along each coordinate of the box, through the summit.
    """

    seen: int
    box: np.ndarray
    summit: np.ndarray
    curves: list[np.ndarray]


@dataclass
class History:
    """R̂ at every look. One thread may add to it while others read."""

    _moments: list[Moment] = field(default_factory=list)

    def add(self, seen: int, result: Reconstruction, box: np.ndarray, summit: np.ndarray) -> None:
        """Add a look after ``seen`` observations."""
        strips = range(min(result.dim, MOST_STRIPS))
        curves = [_below(result, _line(axis, box, summit), summit) for axis in strips]
        moments = [*self._moments, Moment(seen, box, summit, curves)]
        # The first and the last are kept.
        self._moments = moments if len(moments) <= REMEMBERED else [moments[0], *moments[2:-1:2], moments[-1]]

    def strip(self, axis: int) -> Strip | None:
        """R̂ over time along one coordinate; ``None`` before the first look."""
        moments = self._moments
        if not moments:
            return None
        seen = np.array([one.seen for one in moments])
        low, high = (select([one.box[end, axis] for one in moments]) for end, select in enumerate((min, max)))
        places = np.linspace(low, high, PLACES)
        # A column shows the last look before its middle; before the first look there is nothing.
        edges = np.linspace(0, max(seen[-1], 1), COLUMNS + 1)
        which = np.searchsorted(seen, (edges[1:] + edges[:-1]) / 2, side="right") - 1
        values = np.full((PLACES, COLUMNS), np.nan)
        if axis < MOST_STRIPS:
            for number in np.unique(which[which >= 0]):
                one = moments[number]
                own = _along(one.box, axis, PLACES)
                values[:, which == number] = np.interp(places, own, one.curves[axis], np.nan, np.nan)[:, None]
        summits = np.array([one.summit[axis] for one in moments])
        return Strip((float(edges[0]), float(edges[-1])), (float(low), float(high)), values, seen, summits)
