"""What a page draws, cut down to what a browser can hold: maps, curves, intervals, and R̂(t) as a strip.

However many observations there are, a map is so many cells, a strip so many columns, and of the learners' points only
a few hundred of the last are shown.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from onlooker.reconstruction import Reconstruction
from onlooker.reward.diagnostics import kernel_ess

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

# Cells of a map per axis, of a map of errors, and places of a curve.
CELLS, ERROR_CELLS, PLACES = 72, 30, 64
# The share of the points beyond either end of an axis, and the room beyond that, in widths.
BEYOND, ROOM = 0.005, 0.05
# A view is kept while it is at most so many times as wide as it has to be.
LOOSE = 1.6
# Columns of a strip, and looks that are remembered: when there are more, every second one is dropped.
COLUMNS, REMEMBERED = 240, 960
# Coordinates whose past is remembered, and that have an interval.
MOST_STRIPS, MOST_INTERVALS = 16, 60


class Map(NamedTuple):
    """Values (vertical, horizontal) on a grid; nan where no learner was."""

    horizontal: np.ndarray
    vertical: np.ndarray
    values: np.ndarray


class Curve(NamedTuple):
    """R̂ − max R̂ along a coordinate, and its standard error."""

    along: np.ndarray
    values: np.ndarray
    errors: np.ndarray


class Intervals(NamedTuple):
    """5 and 95 % of each coordinate: of exp(R̂), and of where learners were."""

    coordinates: np.ndarray
    found: np.ndarray
    seen: np.ndarray


class Strip(NamedTuple):
    """R̂(t) along a coordinate: values (places, columns), over so many observations and that range of places."""

    observations: tuple[float, float]
    places: tuple[float, float]
    values: np.ndarray
    moments: np.ndarray
    summits: np.ndarray


def view_box(points: np.ndarray, before: np.ndarray | None) -> np.ndarray:
    """(2, dim): where points (n, dim) are; the view there was before, while it still fits."""
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
    """R̂ less what it is at its summit, or its standard error, over two coordinates; the others are the summit's."""
    cells = ERROR_CELLS if errors else CELLS
    horizontal, vertical = (_along(box, axis, cells) for axis in pair)
    places = np.tile(summit, (cells * cells, 1))
    for axis, grid in zip(pair, np.meshgrid(horizontal, vertical), strict=True):
        places[:, axis] = grid.ravel()
    values = result.reward_error(places) if errors else _below(result, places, summit)
    return Map(horizontal, vertical, values.reshape(cells, cells))


def curve_along(result: Reconstruction, axis: int, box: np.ndarray, summit: np.ndarray) -> Curve:
    """R̂ along one coordinate; the others are its summit's."""
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
    """Of samples (n, dim) and points (n, dim); of very many coordinates, some."""
    dim = points.shape[1]
    chosen = np.unique(np.linspace(0, dim - 1, min(dim, MOST_INTERVALS)).astype(int))
    found, seen = (np.quantile(part[:, chosen], [0.05, 0.95], axis=0) for part in (samples, points))
    return Intervals(chosen, found, seen)


def crowd_at(place: np.ndarray, points: np.ndarray) -> float:
    """Kernel ESS (Σw)²/Σw² at a place: how many of the points (n, dim) speak of it.

    w is a Gaussian kernel with the bandwidth of Scott's rule, n^(−1/(dim + 4)) standard deviations.
    """
    count, dim = points.shape
    bandwidth = points.std(axis=0) * count ** (-1 / (dim + 4))
    distance = np.sum(((points - place) / np.where(bandwidth > 0, bandwidth, 1.0)) ** 2, axis=1)
    weight = np.exp(-0.5 * (distance - distance.min()))
    return kernel_ess(np.array([weight.sum()]), np.array([(weight**2).sum()]))


class Moment(NamedTuple):
    """R̂ after so many observations: along each coordinate of a box, through its summit of then."""

    seen: int
    box: np.ndarray
    summit: np.ndarray
    curves: list[np.ndarray]


@dataclass
class History:
    """R̂ as it was at every look. One thread may add to it while others read."""

    _moments: list[Moment] = field(default_factory=list)

    def add(self, seen: int, result: Reconstruction, box: np.ndarray, summit: np.ndarray) -> None:
        strips = range(min(result.dim, MOST_STRIPS))
        curves = [_below(result, _line(axis, box, summit), summit) for axis in strips]
        moments = [*self._moments, Moment(seen, box, summit, curves)]
        # The first and the last stay.
        self._moments = moments if len(moments) <= REMEMBERED else [moments[0], *moments[2:-1:2], moments[-1]]

    def strip(self, axis: int) -> Strip | None:
        """Of one coordinate; ``None`` before there was anything to see."""
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
