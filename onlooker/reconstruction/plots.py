"""Figures of a reconstructed reward: a map, curves along coordinates, chains over time.

The truth is always grey, what was reconstructed always coloured. Nothing is shown on a screen: every function returns a
Figure, and `save` writes it.
"""

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "TRUTH",
    "curves",
    "empty_figure",
    "inline",
    "label_axes",
    "landscape",
    "reward_map",
    "reward_panel",
    "save",
    "trace",
]

TRUTH = "0.25"
COLOURS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a")


def save(figure: "Figure", path: Path, dpi: int = 110) -> Path:
    """Write a figure to a file, whose folder is created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    return path


def inline(figure: "Figure") -> str:
    """The figure as an HTML image that needs no file."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=80)
    return f'<img alt="R̂" src="data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}">'


def empty_figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches; imports matplotlib, which is slow, only when something is drawn."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def label_axes(axes: Any, first: str = "θ(1)", second: str = "θ(2)") -> None:
    """Label both axes."""
    axes.set_xlabel(first)
    axes.set_ylabel(second)


def trace(samples: np.ndarray, sample_every: int, chains: int = 3) -> "Figure":
    """A few chains over time, from samples (chain, draw, dim)."""
    dim = min(samples.shape[2], 4)
    figure = empty_figure(8, 1.8 * dim + 0.6)
    panels = np.atleast_1d(figure.subplots(dim, 1, sharex=True))
    steps = (np.arange(samples.shape[1]) + 1) * float(sample_every)
    unit, label = (1e6, "steps (millions)") if steps[-1] > 1e5 else (1, "steps")
    for axis, axes in enumerate(panels):
        for chain, colour in zip(range(min(chains, len(samples))), COLOURS, strict=False):
            axes.plot(steps / unit, samples[chain, :, axis], color=colour, linewidth=0.8, label=f"chain {chain + 1}")
        axes.set_ylabel(f"α({axis + 1})")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False, fontsize=9)
    panels[-1].set_xlabel(label)
    return figure


def reward_map(
    centres: tuple[np.ndarray, ...], values: np.ndarray, samples: np.ndarray, depth: float = 8.0
) -> "Figure":
    """βR̂ in two dimensions, down to ``depth`` below its maximum, and samples (n, 2); white where not explored."""
    figure = empty_figure(5.6, 4.4)
    axes = figure.subplots()
    filled = reward_panel(axes, centres, values - np.nanmax(values), depth)
    axes.plot(*samples.T, ".", color=COLOURS[0], markersize=2, alpha=0.6, label="samples of exp(βR̂)")
    axes.set_xlim(*centres[0][[0, -1]])
    axes.set_ylim(*centres[1][[0, -1]])
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    axes.set_title("reconstructed reward", fontsize=11)
    figure.colorbar(filled, ax=axes, label="β(R̂ − max R̂)")
    return figure


def reward_panel(axes: Any, centres: tuple[np.ndarray, ...], values: np.ndarray, depth: float) -> Any:
    """Draw a reward, relative to its maximum, down to ``depth`` below it; returns what a colour bar needs."""
    levels = np.linspace(-depth, 0, 17)
    relative = np.clip(values, -depth, 0)
    filled = axes.contourf(*centres, relative.T, levels=levels, cmap="magma")
    axes.contour(*centres, relative.T, levels=levels[2::2], colors="white", linewidths=0.4)
    axes.set_aspect("equal")
    label_axes(axes)
    return filled


def landscape(centres: tuple[np.ndarray, ...], values: np.ndarray, points: np.ndarray, maximum: np.ndarray) -> "Figure":
    """R̂ in two dimensions in its own units, with some of the points that learners visited."""
    figure = empty_figure(6.4, 5)
    axes = figure.subplots()
    filled = axes.contourf(*centres, (values - np.nanmax(values)).T, levels=20, cmap="magma")
    axes.plot(*points.T, ".", color="0.35", markersize=1.5, alpha=0.5, label="visited points")
    axes.plot(*maximum, "+", color=COLOURS[0], markersize=14, markeredgewidth=2.5, label="maximum of R̂")
    axes.set_xlim(*centres[0][[0, -1]])
    axes.set_ylim(*centres[1][[0, -1]])
    label_axes(axes)
    axes.set_title("reconstructed reward (white: not explored)", fontsize=11)
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    figure.colorbar(filled, ax=axes, label="R̂ − max R̂")
    return figure


def curves(axes: list[np.ndarray], values: list[np.ndarray], errors: list[np.ndarray], place: np.ndarray) -> "Figure":
    """R̂ along each coordinate through one point, with two standard errors where they are known."""
    across = min(len(axes), 4)
    down = -(-len(axes) // across)
    figure = empty_figure(1.2 + 3.2 * across, 3.2 * down)
    panels = np.atleast_1d(figure.subplots(down, across, squeeze=False).ravel())
    top = max(np.nanmax(value) for value in values)
    for number, (along, value, error) in enumerate(zip(axes, values, errors, strict=True)):
        panel = panels[number]
        panel.fill_between(along, value - top - 2 * error, value - top + 2 * error, color=COLOURS[0], alpha=0.25)
        panel.plot(along, value - top, color=COLOURS[0], label="R̂ ± 2 errors")
        panel.axvline(place[number], color=TRUTH, linewidth=0.8, linestyle=":", label="through this point")
        label_axes(panel, f"θ({number + 1})", "R̂ − max R̂" if number % across == 0 else "")
    for panel in panels[len(axes) :]:
        panel.set_visible(False)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False, fontsize=9)
    return figure
