"""Per agent: the number of rows, and Σ cos(θ′ − θ, g) over its steps; by a hash of its name, in bounded memory.

Of more than MOST agents those of the smallest hashes are kept, which are a fair sample of them: the share of the range
that their hashes fill tells how many there are. Two sketches join exactly, because an agent that is kept in the end
was kept in each.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

__all__ = ["AgentsSeen", "RowsByAgent", "distinct", "hashes_of"]

# Agents that are kept: the number of more of them is then known to one per cent.
MOST = 1 << 14
# Integers in a range of this many times their number are counted in an array instead of sorted.
DENSE = 8


def distinct(names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`np.unique` with the inverse; integers of a small range are not sorted."""
    if names.dtype.kind in "iu" and len(names):
        low, high = int(names.min()), int(names.max())
        if high - low < DENSE * len(names):
            present = np.zeros(high - low + 1, bool)
            shifted = (names - low).astype(np.int64, copy=False)
            present[shifted] = True
            return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[shifted]
    found, which = np.unique(names, return_inverse=True)
    return found, which


def hashes_of(names: list[str]) -> np.ndarray:
    """64 bits for each name."""
    digests = (blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(b"".join(digests), np.uint64)


@dataclass(frozen=True)
class AgentsSeen:
    """What is known about agents.

    Attributes
    ----------
    hashes
        Hashes (k,) of the names, ascending.
    rows
        Number (k,) of rows.
    along
        Σ (k,) of the cosines of steps with gradients.
    steps
        Number (k,) of steps.
    """

    hashes: np.ndarray
    rows: np.ndarray
    along: np.ndarray
    steps: np.ndarray

    @classmethod
    def none(cls) -> "AgentsSeen":
        """No agents."""
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))

    def joined(self, other: "AgentsSeen") -> "AgentsSeen":
        """What is known from both."""
        hashes, which = np.unique(np.concatenate([self.hashes, other.hashes]), return_inverse=True)
        sums = []
        for mine, theirs in ((self.rows, other.rows), (self.along, other.along), (self.steps, other.steps)):
            total = np.zeros(len(hashes), mine.dtype)
            # One after the other, so that the order of the sums does not depend on the hashes.
            total[which[: len(mine)]] += mine
            total[which[len(mine) :]] += theirs
            sums.append(total[:MOST])
        return AgentsSeen(hashes[:MOST], *sums)

    @property
    def number(self) -> int:
        """The number of agents: exact up to MOST, and estimated beyond."""
        if len(self.hashes) < MOST:
            return len(self.hashes)
        return round((MOST - 1) / (float(self.hashes[-1]) / 2.0**64))

    @property
    def cosines(self) -> np.ndarray:
        """Mean cosine of each agent that made a step."""
        moved = self.steps > 0
        return self.along[moved] / self.steps[moved]


class RowsByAgent:
    """Rows in the order of a log, by agent: each one's rows and steps.

    Parameters
    ----------
    dim
        Dimension of the points.
    """

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._numbers: dict[Any, int] = {}
        self._rows = np.zeros(0, np.int64)
        self._along, self._steps = np.zeros(0), np.zeros(0, np.int64)
        # The last point, gradient and time of each agent.
        self._last = np.zeros((0, 2 * dim + 1))

    @property
    def names(self) -> np.ndarray:
        """The agents, in the order in which they appeared."""
        return np.array(list(self._numbers))

    def numbers(self, agents: np.ndarray) -> np.ndarray:
        """The number (n,) of each row's agent; new agents get the next ones."""
        names, which = distinct(agents)
        found = np.array([self._numbers.setdefault(name, len(self._numbers)) for name in names.tolist()], np.int64)
        new = len(self._numbers) - len(self._rows)
        if new:
            self._rows, self._steps = (np.pad(part, (0, new)) for part in (self._rows, self._steps))
            self._along = np.pad(self._along, (0, new))
            self._last = np.pad(self._last, ((0, new), (0, 0)), constant_values=np.nan)
        return found[which]

    def ranks(self, numbers: np.ndarray) -> np.ndarray:
        """How many rows of the same agent came before each row; the rows are counted."""
        order, starts, owners = _grouped(numbers)
        ranks = np.empty(len(numbers), np.int64)
        sizes = np.diff(np.append(starts, len(order)))
        ranks[order] = np.arange(len(order)) - np.repeat(starts, sizes) + np.repeat(self._rows[owners], sizes)
        self._rows[owners] += sizes
        return ranks

    def add(self, points: np.ndarray, gradients: np.ndarray, numbers: np.ndarray, times: np.ndarray | None) -> None:
        """Add rows (n, dim), with the numbers of their agents."""
        if not len(points):
            return
        order, starts, owners = _grouped(numbers)
        sizes = np.diff(np.append(starts, len(order)))
        self._rows[owners] += sizes
        when = np.zeros(len(points)) if times is None else times
        rows = np.column_stack([points, gradients, when])[order]
        # Each agent's rows, with its last one before them.
        before = np.empty_like(rows)
        before[1:] = rows[:-1]
        before[starts] = self._last[owners]
        self._last[owners] = rows[starts + sizes - 1]
        dim = self._dim
        steps, taken = rows[:, :dim] - before[:, :dim], before[:, dim:-1]
        lengths = np.sqrt(np.einsum("nd,nd->n", steps, steps)) * np.sqrt(np.einsum("nd,nd->n", taken, taken))
        # The first row of an agent has nan before it.
        moved = lengths > 0 if times is None else (lengths > 0) & (rows[:, -1] > before[:, -1])
        cosine = np.zeros(len(rows))
        np.divide(np.einsum("nd,nd->n", steps, taken), lengths, out=cosine, where=moved)
        self._along[owners] += np.add.reduceat(cosine, starts)
        self._steps[owners] += np.add.reduceat(moved.astype(np.int64), starts)

    def seen(self) -> AgentsSeen:
        """What is known by now."""
        hashes = hashes_of([str(name) for name in self._numbers])
        order = np.argsort(hashes)[:MOST]
        return AgentsSeen(hashes[order], self._rows[order], self._along[order], self._steps[order])


def _grouped(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows ordered by agent, where each agent's rows begin, and the agents."""
    small = numbers.astype(np.uint16) if numbers.max(initial=0) < 1 << 16 else numbers
    # NumPy sorts 16 bits by radix.
    order = np.argsort(small, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))[: len(ordered)]
    return order, starts, ordered[starts]
