"""Figures of the paper's examples: histograms of chains beside the truth, as contours, surfaces and marginals."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from onlooker.core.histogram import Histogram
from onlooker.reconstruction.plots import COLOURS, TRUTH, empty_figure, label_axes, reward_panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["beside_truth", "demonstration", "distances", "marginals", "one_marginal", "side_by_side", "surface"]


def _density(histogram: Histogram) -> np.ndarray:
    """Probability per unit of area in the inner bins."""
    area = np.prod([edges[1] - edges[0] for edges in histogram.edges])
    return histogram.inside / histogram.counts.sum() / area


def beside_truth(found: Histogram, truth: Histogram, title: str) -> "Figure":
    """Contours of a density and of the exact one, at the same levels."""
    return side_by_side({title: found, "exact exp(R)": truth})


def side_by_side(found: Mapping[str, Histogram]) -> "Figure":
    """Contours of densities, at the same levels."""
    figure = empty_figure(1 + 4 * len(found), 4.2)
    panels = figure.subplots(1, len(found), sharex=True, sharey=True)
    top = max(_density(histogram).max() for histogram in found.values())
    levels = np.linspace(0, top, 11)
    for axes, (name, histogram) in zip(panels, found.items(), strict=True):
        filled = axes.contourf(*histogram.centres, _density(histogram).T, levels=levels, cmap="viridis")
        axes.contour(*histogram.centres, _density(histogram).T, levels=levels[1:], colors="white", linewidths=0.4)
        axes.set_title(name, fontsize=11)
        axes.set_aspect("equal")
        label_axes(axes)
    figure.colorbar(filled, ax=panels, label="density", shrink=0.9, format="%.2f")
    return figure


def surface(histogram: Histogram, title: str) -> "Figure":
    """The histogram in three dimensions."""
    figure = empty_figure(6, 5)
    axes = figure.add_subplot(projection="3d")
    first, second = np.meshgrid(*histogram.centres, indexing="ij")
    axes.plot_surface(first, second, _density(histogram), cmap="viridis", rstride=1, cstride=1, linewidth=0.1)
    label_axes(axes)
    axes.set_zlabel("density")
    axes.view_init(30, 20)
    axes.set_title(title, fontsize=11)
    return figure


def marginals(found: Mapping[str, Histogram], truth: Histogram) -> "Figure":
    """The marginal of every coordinate, with the truth in grey."""
    dim = len(truth.edges)
    figure = empty_figure(4.5 * dim, 3.6)
    panels = np.atleast_1d(figure.subplots(1, dim))
    for axis, axes in enumerate(panels):
        _marginal_panel(axes, axis, found, truth)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)
    return figure


def _marginal_panel(axes: Any, axis: int, found: Mapping[str, Histogram], truth: Histogram) -> None:
    exact = truth.marginal(axis)
    axes.stairs(_density(exact), exact.edges[0], fill=True, color="0.85", label="exact exp(R)")
    axes.stairs(_density(exact), exact.edges[0], color=TRUTH, linewidth=1)
    for colour, (name, histogram) in zip(COLOURS, found.items(), strict=False):
        own = histogram.marginal(axis)
        axes.stairs(_density(own), own.edges[0], color=colour, linewidth=1.8, label=name)
    label_axes(axes, f"θ({axis + 1})", "density")


def distances(
    found: Mapping[str, np.ndarray],
    baselines: Mapping[str, np.ndarray],
    floor: np.ndarray,
    unit: str = "W1 to the truth",
) -> "Figure":
    """A distance per coordinate, with those of no algorithm at all (dashed) and the error of the truth (shaded)."""
    figure = empty_figure(9, 4.6)
    axes = figure.subplots()
    coordinate = np.arange(1, len(floor) + 1)
    for colour, (name, values) in zip(COLOURS, found.items(), strict=False):
        axes.plot(coordinate, values, "o-", color=colour, markersize=2.5, linewidth=0.8, label=_with_mean(name, values))
    for style, (name, values) in zip(("--", ":"), baselines.items(), strict=False):
        label = _with_mean(f"no algorithm: {name}", values)
        axes.plot(coordinate, values, style, color=TRUTH, linewidth=1.1, label=label)
    axes.fill_between(
        coordinate, floor, axes.get_ylim()[0], color="0.85", label=_with_mean("error of the truth", floor)
    )
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(float(floor.min()) / 2, 1e-4))
    axes.set_xlim(1, len(floor))
    label_axes(axes, "coordinate", unit)
    figure.legend(fontsize=9, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _with_mean(name: str, values: np.ndarray) -> str:
    return f"{name} (mean {values.mean():.3g})"


def one_marginal(found: Mapping[str, np.ndarray], truth: np.ndarray, title: str) -> "Figure":
    """Densities of samples (n,) of one coordinate beside the truth, given by its evenly spaced quantiles."""
    figure = empty_figure(7.5, 4.2)
    axes = figure.subplots()
    low, high = truth[0] - 2, truth[-1] + 2
    edges = np.linspace(low, high, 61)
    middle = (edges[1:] + edges[:-1]) / 2
    axes.hist(truth, edges[::2].tolist(), density=True, color="0.8", label="truth")
    for colour, (name, samples) in zip(COLOURS, found.items(), strict=False):
        density = np.histogram(samples, edges)[0] / len(samples) / (edges[1] - edges[0])
        outside = float(np.mean((samples < low) | (samples > high)))
        label = f"{name} ({outside:.0%} outside)" if outside > 0.005 else name
        axes.plot(middle, density, color=colour, linewidth=1.5, label=label)
    label_axes(axes, "θ", "density")
    axes.set_title(title, fontsize=11)
    axes.legend(fontsize=9, frameon=False)
    return figure


def demonstration(
    seen: tuple[np.ndarray, np.ndarray],
    centres: tuple[np.ndarray, ...],
    rewards: tuple[np.ndarray, np.ndarray, np.ndarray],
    line: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    depth: float,
    shown: int = 500,
) -> "Figure":
    """What is seen, R̂, R, both along the line through two hills, and what the paper's learner makes of it.

    Parameters
    ----------
    seen
        Points and gradients (n, 2).
    centres
        Places of a grid along each axis.
    rewards
        R̂, R, and the R̂ of the paper's learner at the grid's places, below the maximum of R.
    line
        Along the line: the distance from the first hill, R̂, its standard error, and R.
    depth
        How far below the maximum is drawn.
    shown
        Number of gradients drawn.
    """
    figure = empty_figure(11.5, 7.4)
    panels = figure.subplot_mosaic("AABBCC;DDDDEE", height_ratios=(1.2, 1))
    shape = tuple(map(len, centres))
    some = np.linspace(0, len(seen[0]) - 1, shown).astype(int)
    points, gradients = (part[some] for part in seen)
    length = np.linalg.norm(gradients, axis=1, keepdims=True)
    arrows: dict[str, Any] = {"angles": "xy", "scale": 28, "width": 0.004, "alpha": 0.55, "color": COLOURS[0]}
    panels["A"].quiver(*points.T, *(gradients / length).T, **arrows)
    titles = {
        "A": f"what is seen: points and noisy gradients\n({shown} of {len(seen[0]):,}, lengths not drawn)",
        "B": "what Onlooker makes of it: R̂\n(white: not explored)",
        "C": "what the learners climb: R\n(never shown to Onlooker)",
        "D": "along the line through both hills",
        "E": "the paper's learner, from the same rows",
    }
    for name, title in titles.items():
        panels[name].set_title(title, fontsize=11)
    drawn = [
        reward_panel(panels[name], centres, values.reshape(shape), depth)
        for name, values in zip("BCE", rewards, strict=True)
    ]
    for name in "ABCE":
        panels[name].set_xlim(centres[0][0], centres[0][-1])
        panels[name].set_ylim(centres[1][0], centres[1][-1])
        panels[name].set_aspect("equal")
        label_axes(panels[name])
    figure.colorbar(drawn[1], ax=panels["C"], label="reward below its maximum", shrink=0.85)
    where, found, bars, real = line
    axes = panels["D"]
    axes.fill_between(where, found - 2 * bars, found + 2 * bars, alpha=0.3, color=COLOURS[0], linewidth=0)
    axes.plot(where, found, color=COLOURS[0], label="R̂ ± 2 standard errors")
    axes.plot(where, real, "--", color=TRUTH, label="R")
    axes.set_ylim(-depth, 1)
    label_axes(axes, "distance from the left hill towards the right one", "reward below its maximum")
    axes.legend(fontsize=9, frameon=False, loc="lower center")
    return figure
