"""cos(mu), sin(mu) and their products over axes: the inner loop of the sums over cosines."""

import math
import threading
from collections.abc import Sequence
from functools import reduce

import numpy as np

__all__ = ["paired", "products", "waves", "work"]

# Below this number of angles, the overhead of NumPy calls dominates, and doubling needs fewer of them.
FEW_ANGLES = 512


class _Work(threading.local):
    """Arrays that are used again, by name: an allocator that gives memory back at once would cost three times as much.

    Each thread has its own.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        size = math.prod(shape)
        if name not in self._arrays or self._arrays[name].size < size:
            self._arrays[name] = np.empty(size)
        return self._arrays[name][:size].reshape(shape)


work = _Work()


def waves(angle: np.ndarray, count: int, room: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """cos(mu) and sin(mu) for m < count, (count, n) each: by recurrence or, for few angles, by doubling m.

    ``room`` is an array (2, count, n) to write them to.
    """
    cosine, sine = np.empty((2, count, len(angle))) if room is None else room
    cosine[0], sine[0] = 1, 0
    known = 1
    if len(angle) >= FEW_ANGLES and count > 1:
        cosine[1], sine[1] = np.cos(angle), np.sin(angle)
        twice = 2 * cosine[1]
        for wave in (cosine, sine):
            for number in range(2, count):
                np.multiply(twice, wave[number - 1], out=wave[number])
                wave[number] -= wave[number - 2]
        return cosine, sine
    while known < count:
        new, old = slice(known, min(2 * known, count)), slice(min(known, count - known))
        turn_cosine, turn_sine = np.cos(known * angle), np.sin(known * angle)
        cosine[new] = cosine[old] * turn_cosine - sine[old] * turn_sine
        sine[new] = sine[old] * turn_cosine + cosine[old] * turn_sine
        known *= 2
    return cosine, sine


def paired(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left[p, k] right[q, k] for all pairs (p, q), as rows."""
    return (left[:, None] * right).reshape(-1, right.shape[-1])


def _paired_again(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The same, in an array that the next call uses again."""
    room = work("pairs", len(left), len(right), right.shape[-1])
    return np.multiply(left[:, None], right, out=room).reshape(-1, right.shape[-1])


def products(factors: Sequence[np.ndarray]) -> np.ndarray:
    """Σ_k Π_i factor_i[p_i, k], over all combinations of p; there are at most three factors."""
    *front, last = factors
    joined = reduce(_paired_again, front) if front else None
    total = last.sum(axis=-1) if joined is None else joined @ last.T
    return total.reshape([len(factor) for factor in factors])
