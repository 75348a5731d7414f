"""Bars of weights with their intervals: features coloured, suspects pale, and what cannot be known grey."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from onlooker.explanation.result import Explanation

__all__ = ["bars", "draw_bars"]

COLOUR, PALE, GREY = "#1f77b4", "#aec7e8", "0.75"


def bars(why: "Explanation") -> "Figure":
    """A Figure of `draw_bars`."""
    from matplotlib.figure import Figure

    count = len(why.names) + len(why.suspected) + len(why.unidentified)
    figure = Figure(figsize=(1.6 + 0.75 * count, 3.6), layout="constrained")
    draw_bars(figure.subplots(), why)
    return figure


def draw_bars(axes: Any, why: "Explanation", truth: Any = None) -> None:
    """Draw the weights into axes.

    Parameters
    ----------
    axes
        Axes of matplotlib.
    why
        The explanation.
    truth
        (k,) true weights, drawn as lines, less what cannot be known of them.
    """
    k, every = len(why.names), len(why.found.values)
    hidden = why.found.unidentified
    known = np.eye(every) - hidden @ hidden.T
    value, _ = why.found.contrast(known)
    low, high = why.found.interval(known)
    height = np.nanmax(np.abs(np.where(np.isfinite(value), value, 0)[:k]), initial=0) or 1.0
    low, high = (np.nan_to_num(edge, nan=0.0, posinf=3 * height, neginf=-3 * height) for edge in (low, high))
    shown = np.nan_to_num(value)
    places = np.arange(every)
    colours = [COLOUR] * k + [PALE] * (every - k)
    errors = np.maximum(np.stack([shown - low, high - shown]), 0)
    axes.bar(places, shown, color=colours, yerr=errors, capsize=3, width=0.7)
    labels = [*why.names, *(f"{name}?" for name in why.suspected)]
    for number, direction in enumerate(why.unidentified):
        axes.bar(every + number, 2 * height, bottom=-height, color=GREY, hatch="//", edgecolor="white", width=0.7)
        alike = len(direction) > 1 and all(abs(part - 1) < 1e-3 for part in direction.values())
        labels.append("the same\nto all" if alike and len(direction) == k else " ".join(direction))
    if truth is not None:
        padded = known[:k, :k] @ np.asarray(truth, float)
        axes.hlines(padded, places[:k] - 0.45, places[:k] + 0.45, color="0.25", linewidth=1.5, label="truth")
        axes.legend(fontsize=8, frameon=False)
    axes.axhline(0, color="0.25", linewidth=0.8)
    axes.set_xticks(np.arange(len(labels)), labels, fontsize=9)
    axes.set_ylabel("weight" if not len(hidden.T) else "weight, up to what is grey")
