"""The figure of a landscape: R̂ on its plane with the runs drawn on it, and the error bars beside."""

from typing import TYPE_CHECKING, Any

import numpy as np

from onlooker.reconstruction.plots import empty_figure, label_axes

if TYPE_CHECKING:
    from onlooker.reconstruction.landscape import Landscape

__all__ = ["drawn", "panel"]

# Number of places along an axis, of levels, and of runs drawn as lines; rows of more runs are dots.
PLACES, LEVELS, MOST_RUNS = 80, 16, 40


def drawn(found: "Landscape") -> Any:
    """See `Landscape.plot`."""
    axes, grid = found.grid(PLACES)
    figure = empty_figure(10, 4.4)
    left, right = figure.subplots(1, 2)
    panel(left, axes, found.reward(grid), "R̂ on the plane")
    _runs(left, found)
    panel(right, axes, np.where(found.explored(grid), found.reward_error(grid), np.nan), "its standard error")
    for one in (left, right):
        label_axes(one, *found.names[:2])
    return figure


def panel(axes: Any, ticks: np.ndarray, values: np.ndarray, title: str) -> None:
    """A map of values at all pairs of ticks."""
    shown = np.ma.masked_invalid(values.reshape(len(ticks[0]), -1).T)
    drawn = axes.contourf(*ticks, shown, levels=LEVELS)
    axes.figure.colorbar(drawn, ax=axes)
    axes.set_title(title)


def _runs(axes: Any, found: "Landscape") -> None:
    agents = np.unique(found.agents)
    if len(agents) > MOST_RUNS:
        axes.plot(*found.path.T[:2], ".", color="0.15", markersize=1)
        return
    for agent in agents:
        axes.plot(*found.path[found.agents == agent].T[:2], color="0.15", linewidth=0.7)
