"""Marks: a few numbers beside a row, about what its trainer did there; columns of a log, each with a usual value.

A column whose values are all the usual one says nothing, and is dropped when it is read.
"""

from collections.abc import Mapping

import numpy as np

__all__ = ["ALONG", "HIDDEN", "MARKS", "joined_marks", "of_rows", "telling"]

# Each mark, and its value in rows about which it says nothing.
MARKS: Mapping[str, float] = {
    # The loss of the batch, if the trainer told it.
    "loss": np.nan,
    # The loss scale that the gradient was divided by.
    "scale": 1.0,
    # The factor by which the gradient was clipped, and which was divided out; 0 if it was clipped coordinate by
    # coordinate, which cannot be undone. And the limit.
    "clip": 1.0,
    "limit": np.nan,
    # Number of backward passes that the gradient is the sum of, divided by what the recorder was told to divide by.
    "passes": 1.0,
    # Of the step from the row before to this one, in all recorded dimensions (`onlooker.data.record.halves`): the
    # trapezoid ½(g + g′)·Δθ, ½ cov(Δθ, g), the variance of their difference, and |a − b|² of two half batches.
    "gain": np.nan,
    "correction": np.nan,
    "variance": np.nan,
    "halves": np.nan,
    # Of points along directions (`onlooker.data.record.hidden`): h·g and |h|, h what the directions hide.
    "across": np.nan,
    "distance": np.nan,
}
HIDDEN = ("across", "distance")
ALONG = ("gain", "correction", "variance", "halves")


def telling(marks: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns that say something."""
    return {
        name: values
        for name, values in marks.items()
        if not (np.isnan(values) if np.isnan(MARKS[name]) else values == MARKS[name]).all()
    }


def joined_marks(parts: list[Mapping[str, np.ndarray] | None], counts: list[int]) -> dict[str, np.ndarray]:
    """The columns of several pieces with these numbers of rows, one after the other."""
    names = sorted({name for part in parts for name in part or ()})
    return {
        name: np.concatenate(
            [
                part[name] if part and name in part else np.full(count, MARKS[name])
                for part, count in zip(parts, counts, strict=True)
            ]
        )
        for name in names
    }


def of_rows(marks: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    """The marks of some rows: indices or a mask."""
    return {name: values[rows] for name, values in marks.items()}
