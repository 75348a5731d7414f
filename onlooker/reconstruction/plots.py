"""Pictures of a reconstructed reward: beside the truth, as a surface, by marginals, along a chain.

Colours: truth is always grey, what was reconstructed always coloured. Nothing is shown on a screen: every function
hands back a Figure, and `save` writes it.
"""

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onlooker.core.histogram import Histogram
from onlooker.fit.grid_reward import GridReward

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "beside_truth",
    "curves",
    "distances",
    "inline",
    "landscape",
    "marginals",
    "one_marginal",
    "overview",
    "reward_map",
    "save",
    "surface",
    "trace",
]

TRUTH = "0.25"
COLOURS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a")


def save(figure: "Figure", path: Path, dpi: int = 110) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    return path


def inline(figure: "Figure") -> str:
    """The figure as an HTML image that needs no file."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=80)
    return f'<img alt="R̂" src="data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}">'


def _figure(width: float, height: float) -> "Figure":
    """An empty one, in inches. Matplotlib takes its time to import, and only who draws waits for it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _density(histogram: Histogram) -> np.ndarray:
    """Probability per unit of area in the inner bins."""
    area = np.prod([edges[1] - edges[0] for edges in histogram.edges])
    return histogram.inside / histogram.counts.sum() / area


def _label(axes: Any, first: str = "θ(1)", second: str = "θ(2)") -> None:
    axes.set_xlabel(first)
    axes.set_ylabel(second)


def beside_truth(found: Histogram, truth: Histogram, title: str) -> "Figure":
    """Contours of two densities, at the same levels."""
    return side_by_side({title: found, "exact exp(R)": truth})


def side_by_side(found: Mapping[str, Histogram]) -> "Figure":
    """Contours of densities, at the same levels."""
    figure = _figure(1 + 4 * len(found), 4.2)
    panels = figure.subplots(1, len(found), sharex=True, sharey=True)
    top = max(_density(histogram).max() for histogram in found.values())
    levels = np.linspace(0, top, 11)
    for axes, (name, histogram) in zip(panels, found.items(), strict=True):
        filled = axes.contourf(*histogram.centres, _density(histogram).T, levels=levels, cmap="viridis")
        axes.contour(*histogram.centres, _density(histogram).T, levels=levels[1:], colors="white", linewidths=0.4)
        axes.set_title(name, fontsize=11)
        axes.set_aspect("equal")
        _label(axes)
    figure.colorbar(filled, ax=panels, label="density", shrink=0.9, format="%.2f")
    return figure


def surface(histogram: Histogram, title: str) -> "Figure":
    """The histogram in three dimensions."""
    figure = _figure(6, 5)
    axes = figure.add_subplot(projection="3d")
    first, second = np.meshgrid(*histogram.centres, indexing="ij")
    axes.plot_surface(first, second, _density(histogram), cmap="viridis", rstride=1, cstride=1, linewidth=0.1)
    _label(axes)
    axes.set_zlabel("density")
    axes.view_init(30, 20)
    axes.set_title(title, fontsize=11)
    return figure


def marginals(found: Mapping[str, Histogram], truth: Histogram) -> "Figure":
    """Every coordinate's marginal, the truth in grey behind what was found."""
    dim = len(truth.edges)
    figure = _figure(4.5 * dim, 3.6)
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
    _label(axes, f"θ({axis + 1})", "density")


def trace(samples: np.ndarray, sample_every: int, chains: int = 3) -> "Figure":
    """A few chains over time; samples are (chain, draw, dim)."""
    dim = min(samples.shape[2], 4)
    figure = _figure(8, 1.8 * dim + 0.6)
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


def distances(
    found: Mapping[str, np.ndarray],
    baselines: Mapping[str, np.ndarray],
    floor: np.ndarray,
    unit: str = "W1 to the truth",
) -> "Figure":
    """A distance per coordinate, beside what knowing nothing gives (dashed) and the error of the truth (shaded)."""
    figure = _figure(9, 4.6)
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
    _label(axes, "coordinate", unit)
    figure.legend(fontsize=9, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _with_mean(name: str, values: np.ndarray) -> str:
    return f"{name} (mean {values.mean():.3g})"


def one_marginal(found: Mapping[str, np.ndarray], truth: np.ndarray, title: str) -> "Figure":
    """Densities of samples (n,) of one coordinate beside the truth, given by its evenly spaced quantiles."""
    figure = _figure(7.5, 4.2)
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
    _label(axes, "θ", "density")
    axes.set_title(title, fontsize=11)
    axes.legend(fontsize=9, frameon=False)
    return figure


def reward_map(
    centres: tuple[np.ndarray, ...], values: np.ndarray, samples: np.ndarray, depth: float = 8.0
) -> "Figure":
    """βR̂ in two dimensions, down to ``depth`` below its maximum, and samples (n, 2); white where nothing was seen."""
    figure = _figure(5.6, 4.4)
    axes = figure.subplots()
    filled = _reward_panel(axes, centres, values - np.nanmax(values), depth)
    axes.plot(*samples.T, ".", color=COLOURS[0], markersize=2, alpha=0.6, label="samples of exp(βR̂)")
    axes.set_xlim(*centres[0][[0, -1]])
    axes.set_ylim(*centres[1][[0, -1]])
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    axes.set_title("reconstructed reward", fontsize=11)
    figure.colorbar(filled, ax=axes, label="β(R̂ − max R̂)")
    return figure


def _reward_panel(axes: Any, centres: tuple[np.ndarray, ...], values: np.ndarray, depth: float) -> Any:
    levels = np.linspace(-depth, 0, 17)
    relative = np.clip(values, -depth, 0)
    filled = axes.contourf(*centres, relative.T, levels=levels, cmap="magma")
    axes.contour(*centres, relative.T, levels=levels[2::2], colors="white", linewidths=0.4)
    axes.set_aspect("equal")
    _label(axes)
    return filled


def landscape(centres: tuple[np.ndarray, ...], values: np.ndarray, points: np.ndarray, maximum: np.ndarray) -> "Figure":
    """R̂ in two dimensions in its own units, all of it, with some of the places where learners were."""
    figure = _figure(6.4, 5)
    axes = figure.subplots()
    filled = axes.contourf(*centres, (values - np.nanmax(values)).T, levels=20, cmap="magma")
    axes.plot(*points.T, ".", color="0.35", markersize=1.5, alpha=0.5, label="where learners were")
    axes.plot(*maximum, "+", color=COLOURS[0], markersize=14, markeredgewidth=2.5, label="its maximum there")
    axes.set_xlim(*centres[0][[0, -1]])
    axes.set_ylim(*centres[1][[0, -1]])
    _label(axes)
    axes.set_title("reconstructed reward (white: not explored)", fontsize=11)
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    figure.colorbar(filled, ax=axes, label="R̂ − max R̂")
    return figure


def curves(axes: list[np.ndarray], values: list[np.ndarray], errors: list[np.ndarray], place: np.ndarray) -> "Figure":
    """R̂ along each coordinate through one place, with two standard errors where there are any."""
    across = min(len(axes), 4)
    down = -(-len(axes) // across)
    figure = _figure(1.2 + 3.2 * across, 3.2 * down)
    panels = np.atleast_1d(figure.subplots(down, across, squeeze=False).ravel())
    top = max(np.nanmax(value) for value in values)
    for number, (along, value, error) in enumerate(zip(axes, values, errors, strict=True)):
        panel = panels[number]
        panel.fill_between(along, value - top - 2 * error, value - top + 2 * error, color=COLOURS[0], alpha=0.25)
        panel.plot(along, value - top, color=COLOURS[0], label="R̂ ± 2 errors")
        panel.axvline(place[number], color=TRUTH, linewidth=0.8, linestyle=":", label="through here")
        _label(panel, f"θ({number + 1})", "R̂ − max R̂" if number % across == 0 else "")
    for panel in panels[len(axes) :]:
        panel.set_visible(False)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False, fontsize=9)
    return figure


def overview(
    points: np.ndarray,
    gradients: np.ndarray,
    estimate: GridReward,
    true_reward: np.ndarray,
    truth: Histogram,
    depth: float = 8.0,
) -> "Figure":
    """What was seen, the reward read off it, the reward there was, and the two laws' marginals.

    ``true_reward`` is R at the estimate's centres; both are shown relative to their maxima.
    """
    figure = _figure(11.5, 7.2)
    panels = figure.subplot_mosaic("AABBCC;DDDEEE", height_ratios=(1.25, 1))
    seen, found, real = (panels[name] for name in "ABC")
    length = np.linalg.norm(gradients, axis=1, keepdims=True)
    seen.quiver(*points.T, *(gradients / length).T, color="#1f77b4", alpha=0.55, angles="xy", scale=28, width=0.004)
    seen.set_aspect("equal")
    _label(seen)
    seen.set_title(f"what is seen: points and noisy gradients\n({len(points)} of them, lengths not drawn)", fontsize=11)
    # R̂ is known up to a constant: the one that fits best near the top.
    values = estimate.values
    high = np.isfinite(values) & (true_reward > true_reward.max() - 4)
    shifted = values - np.mean(values[high] - true_reward[high]) - true_reward.max() if high.any() else values
    _reward_panel(found, estimate.centres, shifted, depth)
    found.set_title("what Onlooker makes of it: R̂\n(white: not explored)", fontsize=11)
    filled = _reward_panel(real, estimate.centres, true_reward - true_reward.max(), depth)
    real.set_title("what the learners climb: R\n(never shown to Onlooker)", fontsize=11)
    for axes in (seen, found, real):
        axes.set_xlim(*estimate.histogram.edges[0][[0, -1]])
        axes.set_ylim(*estimate.histogram.edges[1][[0, -1]])
    figure.colorbar(filled, ax=real, label="reward below its maximum", shrink=0.85)
    for axis, axes in enumerate((panels["D"], panels["E"])):
        _marginal_panel(axes, axis, {"Onlooker's chains": estimate.histogram}, truth)
        if axis == 0:
            axes.legend(fontsize=9, loc="upper left", frameon=False)
    return figure
