"""−cos(w·z + φ), w ~ N(0, KᵀK)/ℓ², φ ~ U(0, 2π): a Gaussian process in the limit of many (Rahimi & Recht 2007).

The metric K says in which directions R varies. It is that of the active subspace, of its significant axes alone, even,
or sparse: of one to three raw coordinates at a time, which suits sums of terms of few coordinates.
"""

from typing import NamedTuple

import numpy as np

from onlooker.fit.active_subspace import Active
from onlooker.fit.ridge_frame import Frame
from onlooker.fit.ridge_units import Units

__all__ = ["Metric", "cosines", "metrics"]

# Least share of the largest rate in a direction: directions without a visible signal are not left out.
LEAST_RATE = 0.15
# A sparse frequency has so many coordinates at most.
MOST_COORDINATES = 3


class Metric(NamedTuple):
    """How frequencies are distributed.

    Attributes
    ----------
    root
        K (k, dim).
    sparse
        Whether a frequency has few rows of K instead of all.
    """

    root: np.ndarray
    sparse: bool = False


def metrics(frame: Frame, active: Active | None) -> dict[str, Metric]:
    """The metrics to try, by name."""
    dim = len(frame.centre)
    found = {"even": Metric(np.eye(dim))}
    if active is not None:
        size = np.sqrt(np.maximum(active.values, 0) / active.values[0])
        found["active"] = Metric(np.maximum(size, LEAST_RATE)[:, None] * active.axes)
        if 2 <= active.number < dim:
            found["few"] = Metric(size[: active.number, None] * active.axes[: active.number])
    raw = frame.backward / np.linalg.norm(frame.backward, axis=1, keepdims=True)
    found["coordinates"] = Metric(raw, sparse=True)
    return found


def cosines(metric: Metric, length: float, number: int, seed: int) -> Units:
    """Units of one group with frequencies of a metric, at a length ℓ."""
    generator, (few, dim) = np.random.default_rng(seed), metric.root.shape
    mixed = generator.standard_normal((number, few))
    if metric.sparse:
        ranks = generator.random((number, few)).argsort(axis=1).argsort(axis=1)
        mixed = mixed * (ranks < generator.integers(1, MOST_COORDINATES + 1, number)[:, None])
    phases = generator.uniform(0, 2 * np.pi, number)
    waves = np.column_stack([mixed @ metric.root / length, phases])
    return Units(np.zeros((0, dim + 1)), waves, np.zeros(number, int), np.zeros(1, bool))
