"""Draws the schematic of docs/architecture.md: ``python -m tools.schematic FOLDER``."""

import sys
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from onlooker.reconstruction import plots

__all__ = ["schematic"]


def schematic() -> Figure:
    figure = Figure(figsize=(10, 3.1), layout="constrained")
    axes = figure.subplots()
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 3)
    axes.axis("off")
    boxes = (
        (0.1, "the reward R\n(may jump)", "#e8e8e8"),
        (3.1, "learners\nθ ← θ + ε ∇r(θ)\nrestarted from π", "#d6e6f5"),
        (6.6, "inverse learner\nchain α with law\n→ exp(βR)", "#fbe3cf"),
    )
    for left, text, colour in boxes:
        axes.add_patch(
            FancyBboxPatch((left, 1.2), 1.75, 1.2, boxstyle="round,pad=0.06", facecolor=colour, edgecolor="0.3")
        )
        axes.text(left + 0.87, 1.8, text, ha="center", va="center", fontsize=10.5)
    for start, end, text in (
        (1.95, 3.0, "noisy\ngradients"),
        (4.95, 6.5, "points θ and\ngradients ∇r(θ)"),
        (8.45, 9.25, ""),
    ):
        axes.add_patch(FancyArrowPatch((start, 1.8), (end, 1.8), arrowstyle="-|>", mutation_scale=16, color="0.2"))
        axes.text((start + end) / 2, 2.02, text, ha="center", va="bottom", fontsize=9)
    axes.text(9.3, 1.8, "R̂ = log p̂/β", ha="left", va="center", fontsize=11)
    axes.set_xlim(0, 10.5)
    axes.add_patch(
        FancyArrowPatch(
            (7.4, 1.12),
            (4.0, 1.12),
            connectionstyle="arc3,rad=-0.28",
            arrowstyle="-|>",
            linestyle="--",
            mutation_scale=16,
            color="0.4",
        )
    )
    axes.text(5.7, 0.42, "only when active: a question at α", ha="center", va="center", fontsize=9, color="0.3")
    return figure


if __name__ == "__main__":
    print(plots.save(schematic(), Path(sys.argv[1]) / "schematic.png"))
