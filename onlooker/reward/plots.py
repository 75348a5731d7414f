"""Pictures of a reconstructed reward: beside the truth, as a surface, by marginals, along a chain.

Colours: truth is always grey, what was reconstructed always coloured. Nothing is shown on a screen: every function
hands back a Figure, and `save` writes it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from onlooker.reward.accumulate import Histogram

__all__ = ["beside_truth", "marginals", "reward_beside_truth", "save", "surface", "trace"]

TRUTH = "0.25"
COLOURS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a")


def save(figure: Figure, path: Path, dpi: int = 150) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    return path


def _density(histogram: Histogram) -> np.ndarray:
    """Probability per unit of area in the inner bins."""
    area = np.prod([edges[1] - edges[0] for edges in histogram.edges])
    return histogram.inside / histogram.counts.sum() / area


def _label(axes: Any, first: str = "θ(1)", second: str = "θ(2)") -> None:
    axes.set_xlabel(first)
    axes.set_ylabel(second)


def beside_truth(found: Histogram, truth: Histogram, title: str) -> Figure:
    """Contours of two densities, at the same levels."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    top = max(_density(found).max(), _density(truth).max())
    levels = np.linspace(0, top, 11)
    for axes, histogram, name in zip(panels, (found, truth), (title, "exact exp(R)"), strict=True):
        filled = axes.contourf(*histogram.centres, _density(histogram).T, levels=levels, cmap="viridis")
        axes.contour(*histogram.centres, _density(histogram).T, levels=levels[1:], colors="white", linewidths=0.4)
        axes.set_title(name, fontsize=11)
        axes.set_aspect("equal")
        _label(axes)
    figure.colorbar(filled, ax=panels, label="density", shrink=0.9)
    return figure


def surface(histogram: Histogram, title: str) -> Figure:
    """The histogram in three dimensions."""
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.add_subplot(projection="3d")
    first, second = np.meshgrid(*histogram.centres, indexing="ij")
    axes.plot_surface(first, second, _density(histogram), cmap="viridis", rstride=1, cstride=1, linewidth=0.1)
    _label(axes)
    axes.set_zlabel("density")
    axes.view_init(35, -60)
    axes.set_title(title, fontsize=11)
    return figure


def marginals(found: Mapping[str, Histogram], truth: Histogram, title: str | None = None) -> Figure:
    """Every coordinate's marginal, the truth in grey behind what was found."""
    dim = len(truth.edges)
    figure = Figure(figsize=(4.5 * dim, 3.6), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, dim))
    for axis, axes in enumerate(panels):
        exact = truth.marginal(axis)
        axes.stairs(_density(exact), exact.edges[0], fill=True, color="0.85", label="exact")
        axes.stairs(_density(exact), exact.edges[0], color=TRUTH, linewidth=1)
        for colour, (name, histogram) in zip(COLOURS, found.items(), strict=False):
            own = histogram.marginal(axis)
            axes.stairs(_density(own), own.edges[0], color=colour, linewidth=1.8, label=name)
        _label(axes, f"θ({axis + 1})", "density")
    panels[0].legend(fontsize=9)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def trace(samples: np.ndarray, sample_every: int, chains: int = 3) -> Figure:
    """A few chains over time; samples are (chain, draw, dim)."""
    dim = min(samples.shape[2], 4)
    figure = Figure(figsize=(8, 1.8 * dim + 0.6), layout="constrained")
    panels = np.atleast_1d(figure.subplots(dim, 1, sharex=True))
    steps = (np.arange(samples.shape[1]) + 1) * sample_every
    for axis, axes in enumerate(panels):
        for chain, colour in zip(range(min(chains, len(samples))), COLOURS, strict=False):
            axes.plot(steps, samples[chain, :, axis], color=colour, linewidth=0.8, label=f"chain {chain + 1}")
        axes.set_ylabel(f"α({axis + 1})")
    panels[0].legend(fontsize=8, ncols=chains, loc="upper right")
    panels[-1].set_xlabel("step")
    return figure


def reward_beside_truth(
    centres: tuple[np.ndarray, ...],
    reward: np.ndarray,
    truth: np.ndarray,
    points: np.ndarray | None = None,
    depth: float = 8.0,
    title: str = "reconstructed reward",
) -> Figure:
    """R̂ and R on the same colours, ``depth`` below the maximum; white where nothing was seen."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    levels = np.linspace(-depth, 0, 17)
    # R̂ is known up to a constant: the one that fits best where it is known.
    known = np.isfinite(reward) & (truth > truth.max() - depth)
    shifted = reward - np.mean(reward[known] - truth[known]) if known.any() else reward
    for axes, field, name in zip(panels, (shifted, truth), (title, "true reward R"), strict=True):
        relative = np.clip(field - truth.max(), -depth, 0)
        filled = axes.contourf(*centres, relative.T, levels=levels, cmap="magma")
        axes.contour(*centres, relative.T, levels=levels[1::2], colors="white", linewidths=0.4)
        axes.set_title(name, fontsize=11)
        axes.set_aspect("equal")
        _label(axes)
    if points is not None:
        panels[0].plot(points[:, 0], points[:, 1], ".", color="#7fdbff", markersize=2, alpha=0.6, label="points seen")
        panels[0].legend(fontsize=8, loc="upper right", markerscale=4)
    low, high = (axis[[0, -1]] for axis in centres)
    panels[0].set_xlim(low)
    panels[0].set_ylim(high)
    figure.colorbar(filled, ax=panels, label="R − max R", shrink=0.9)
    return figure
