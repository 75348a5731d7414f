"""The figures of Example 3, over the square of policies (φ(1|1), φ(1|2))."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from onlooker.paper.ridge_tour import QUARTER, STEPS
from onlooker.reconstruction.plots import COLOURS, save
from onlooker.simulation.cmdp import CMDP

__all__ = ["densities", "path", "rewards"]

# Cells per axis.
FINE = 400
# Lowest log share that is drawn, relative to the highest.
DEPTH = 12.0


def _square() -> tuple[np.ndarray, np.ndarray]:
    """Centres of cells along an axis, and the policies at all pairs of them."""
    axis = (np.arange(FINE) + 0.5) / FINE
    first = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    return axis, np.stack([first, 1 - first], axis=-1)


def _label(axes: Any) -> None:
    axes.set_xlabel("φ(1|1)")
    axes.set_ylabel("φ(1|2)")
    axes.set_aspect("equal")


def rewards(cmdp: CMDP, path: Path) -> Path:
    """J where the constraint holds, and the penalised reward, with the optimum of the linear programme."""
    axis, policies = _square()
    values, reward = cmdp.values(policies), cmdp.penalised(policies)
    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    kept = np.where(values[..., 1] <= cmdp.limit[0], values[..., 0], np.nan)
    shown = left.pcolormesh(axis, axis, kept.T, cmap="viridis", rasterized=True)
    figure.colorbar(shown, ax=left, label="J")
    left.set_title(f"(a) average reward J where B ≤ {cmdp.limit[0]:g}\n(white: constraint violated)", fontsize=11)
    below = np.log10(1 + reward.max() - reward)
    shown = right.pcolormesh(axis, axis, below.T, cmap="magma_r", rasterized=True)
    figure.colorbar(shown, ax=right, label="log₁₀(1 + max R − R)")
    right.set_title(f"(b) penalised reward R = J − λ(B − {cmdp.limit[0]:g})², λ = {cmdp.penalty:g}", fontsize=11)
    best = cmdp.optimum().policy[:, 0]
    for axes in (left, right):
        axes.plot(
            *best, "*", color=COLOURS[1], markersize=14, markeredgecolor="white", clip_on=False, label="LP optimum"
        )
        _label(axes)
    left.legend(loc="upper left", frameon=False)
    return save(figure, path)


def densities(masses: Mapping[str, np.ndarray], path: Path) -> Path:
    """Logarithms of masses on square bins, side by side."""
    figure = Figure(figsize=(1.2 + 2.9 * len(masses), 3.6), layout="constrained")
    panels = figure.subplots(1, len(masses), sharex=True, sharey=True)
    for axes, (name, mass) in zip(panels, masses.items(), strict=True):
        with np.errstate(divide="ignore"):
            height = np.log(mass / mass.max())
        edges = np.linspace(0, 1, len(mass) + 1)
        height = np.where(height > -DEPTH, height, np.nan)
        shown = axes.pcolormesh(edges, edges, height.T, cmap="magma", vmin=-DEPTH, vmax=0, rasterized=True)
        axes.set_title(name, fontsize=11)
        _label(axes)
    figure.colorbar(shown, ax=panels, label="log share of a bin, the largest = 0", shrink=0.9)
    return save(figure, path)


def path(cmdp: CMDP, angles: np.ndarray, file: Path) -> Path:
    """The listing's chain in angles, with the ridge that it should follow and the square that it should not leave."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.4))
    axis = np.linspace(0, QUARTER, FINE)
    share = np.sin(np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)) ** 2
    excess = cmdp.values(np.stack([share, 1 - share], axis=-1))[..., 1] - cmdp.limit[0]
    every = max(1, len(angles) // 15_000)
    shown = left.scatter(*angles[::every].T, c=np.arange(0, len(angles), every) / 1000, s=2, cmap="viridis")
    figure.colorbar(shown, ax=left, label="step (thousands)")
    left.contour(axis, axis, excess.T, levels=[0], colors=[COLOURS[1]], linewidths=1.5)
    left.plot([0, QUARTER, QUARTER, 0, 0], [0, 0, QUARTER, QUARTER, 0], color="0.25", linewidth=1)
    left.text(0.05, QUARTER - 0.15, "orange: B = limit\nbox: [0, π/2]²", fontsize=9)
    left.set_xlabel("α(1)")
    left.set_ylabel("α(2)")
    left.set_aspect("equal")
    left.set_title("the listing's chain", fontsize=11)
    steps = np.arange(0, len(angles), every) / 1000
    right.plot(steps, np.sin(angles[::every, 0]) ** 2, color=COLOURS[0], linewidth=0.7, label="φ(1|1)")
    outside = (angles[::every] > QUARTER).any(axis=1)
    right.plot(steps[outside], np.full(outside.sum(), 1.03), "|", color=COLOURS[1], label="outside the square")
    right.set_xlabel("step (thousands)")
    right.set_ylabel("φ(1|1): position along the ridge")
    right.set_xlim(0, STEPS / 1000)
    right.set_ylim(-0.02, 1.2)
    right.legend(loc="upper right", ncols=2, frameon=False, fontsize=9)
    right.set_title("slow drift to the far end of the ridge, return by a reset", fontsize=11)
    return save(figure, file)
