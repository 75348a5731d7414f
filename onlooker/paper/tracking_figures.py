"""The figures of a reward that jumps: its three limits, R̂ over time, and a reward that is learned again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.figure import Figure

from onlooker.core.histogram import Histogram
from onlooker.engine.accumulators import Grid
from onlooker.engine.over_time import over_time as histograms_over_time
from onlooker.engine.run import Chains
from onlooker.fit.jumps.statistic import Jump
from onlooker.reconstruction.plots import COLOURS, TRUTH, save
from onlooker.simulation.mixture import Mixture
from onlooker.simulation.switching import Scheduled

__all__ = ["animation", "over_time", "regimes", "relearned"]

NAMES = {
    "switching": "switching diffusion",
    "mixture": "mixture of both",
    "averaged": "average, stationary weights",
    "averaged_by_start": "average, starting weights",
}
# Rewards lower than this below the maximum are not drawn.
DEPTH = 12.0


def regimes(runs: Mapping[str, tuple[Histogram, str, str]], laws: Mapping[str, Histogram], path: Path) -> Path:
    """For each run its histogram, the law that it should have, and one that it should not have."""
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    for axes, (title, (histogram, right, wrong)) in zip(panels, runs.items(), strict=True):
        centres = histogram.centres[0]
        width = centres[1] - centres[0]
        axes.bar(centres, histogram.inside / histogram.counts.sum() / width, width, color=COLOURS[0], alpha=0.45)
        axes.plot(centres, laws[right].inside / width, color=TRUTH, linewidth=2, label=f"right: {NAMES[right]}")
        axes.plot(centres, laws[wrong].inside / width, "--", color=COLOURS[1], label=f"wrong: {NAMES[wrong]}")
        axes.set_title(title, fontsize=11)
        axes.legend(loc="upper right", fontsize=9, frameon=False)
    panels[0].set_ylim(0, 1.15)
    for axes in panels[2:]:
        axes.set_xlabel("α")
    for axes in panels[::2]:
        axes.set_ylabel("density of chains")
    return save(figure, path)


def over_time(
    chains: Chains,
    places: np.ndarray,
    rewards: np.ndarray,
    every: int,
    schedule: Scheduled,
    jumps: Sequence[Jump],
    path: Path,
) -> Path:
    """R̂(t) of an ensemble at every moment and of an Observer, with the jumps and their detections."""
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    grid = Grid((-3.0,), (3.0,), 60)
    counts = np.array([histogram.inside for histogram in histograms_over_time(chains.samples, grid)])
    with np.errstate(divide="ignore"):
        heights = np.log(counts / counts.max(axis=1, keepdims=True))
    thousands = chains.sample_every * np.arange(1, len(counts) + 2) / 1000
    look: dict[str, Any] = {"cmap": "viridis", "vmin": -6, "vmax": 0, "rasterized": True}
    drawn = above.pcolormesh(thousands, grid.edges[0], np.where(counts > 0, heights, np.nan).T, **look)
    above.set_title("R̂(t) of 1000 chains at each moment, `reweighted`, μ = .002", fontsize=11)
    top = np.nanmax(np.where(np.isfinite(rewards), rewards, -np.inf), axis=1, keepdims=True)
    half = (places[1] - places[0]) / 2
    edges = np.append(places - half, places[-1] + half)
    with np.errstate(invalid="ignore"):
        heights = rewards - top
    below.pcolormesh(every * np.arange(1, len(rewards) + 2) / 1000, edges, heights.T, **look)
    below.set_title("R̂(t) of an Observer with adaptive forgetting; white: too few observations yet", fontsize=11)
    for axes in (above, below):
        for number, time in enumerate(schedule.times):
            axes.axvline(
                time / 1000, color="white", linewidth=1.2, linestyle=":", label="" if number else "the reward jumps"
            )
        axes.set_ylabel("α")
        axes.set_ylim(-3, 3)
    noticed = [jump.found / 1000 for jump in jumps]
    below.plot(noticed, np.full(len(noticed), 2.75), "v", color=COLOURS[1], markersize=8, label="noticed")
    below.legend(loc="lower right", fontsize=9, facecolor="0.35", labelcolor="white", framealpha=0.9)
    below.set_xlabel("observations (thousands)")
    figure.colorbar(drawn, ax=[above, below], label="R̂, its maximum = 0", shrink=0.8, extend="min")
    return save(figure, path)


def _frame(axes: Any, axis: np.ndarray, reward: np.ndarray, truth: np.ndarray, title: str) -> Any:
    """R̂ in colours and the exact reward's contours in white."""
    axes.set_facecolor("0.85")
    top = np.nanmax(reward) if np.isfinite(reward).any() else 0.0
    levels = np.linspace(-DEPTH, 0, 13)
    drawn = axes.contourf(axis, axis, (reward - top).T, levels=levels, cmap="viridis", extend="min")
    axes.contour(axis, axis, (truth - truth.max()).T, levels=[-8, -4, -1], colors="white", linewidths=1.0)
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("θ(1)")
    axes.set_ylabel("θ(2)")
    axes.set_aspect("equal")
    return drawn


def _title(moment: int, jump: int) -> str:
    return f"{jump - moment} before the jump" if moment < jump else f"{moment - jump} after the jump"


def _truths(axis: np.ndarray, rewards: Sequence[Mixture]) -> list[np.ndarray]:
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    return [reward.value(points) for reward in rewards]


def relearned(
    frames: Sequence[tuple[int, np.ndarray]], jump: int, axis: np.ndarray, rewards: Sequence[Mixture], path: Path
) -> Path:
    """R̂ at a few moments around the jump, side by side."""
    truths = _truths(axis, rewards)
    wanted = [min(frames, key=lambda frame: abs(frame[0] - jump - lag)) for lag in (-1, 300, 1000, jump)]
    figure = Figure(figsize=(13, 3.9), layout="constrained")
    panels = figure.subplots(1, len(wanted), sharex=True, sharey=True)
    for axes, (moment, reward) in zip(panels, wanted, strict=True):
        drawn = _frame(axes, axis, reward, truths[moment >= jump], _title(moment, jump))
    figure.colorbar(drawn, ax=panels, label="R̂, its maximum = 0", shrink=0.9)
    figure.suptitle(
        "Example 1, whose true parameter jumps: R̂ in colours (its error is below 4), R in white", fontsize=11
    )
    return save(figure, path)


def animation(
    frames: Sequence[tuple[int, np.ndarray]], jump: int, axis: np.ndarray, rewards: Sequence[Mixture], path: Path
) -> Path:
    """R̂ while it is learned again after the jump, as a GIF."""
    truths = _truths(axis, rewards)
    figure = Figure(figsize=(5, 4.4), layout="constrained")
    axes = figure.subplots()
    colours = _frame(axes, axis, frames[0][1], truths[0], "")
    figure.colorbar(colours, ax=axes, label="R̂, its maximum = 0")

    def draw(number: int) -> list[Any]:
        moment, reward = frames[number]
        axes.clear()
        _frame(axes, axis, reward, truths[moment >= jump], _title(moment, jump))
        return []

    path.parent.mkdir(parents=True, exist_ok=True)
    FuncAnimation(figure, draw, frames=len(frames)).save(path, writer=PillowWriter(fps=5), dpi=80)
    return path
