"""Rows as they come: those that wait to make a block, the last ones that were taken in, and which are held out.

Rows are taken in by blocks of a hundred: however they come, the same sums are made of the same rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from onlooker.data.buffer import Recent
from onlooker.data.observations import Observations
from onlooker.data.splits import agents_held_out, balanced, in_held_stretch, stretches_held_out

__all__ = ["BLOCK", "Block", "Rows", "split"]

BLOCK = 100
# Rows in a stretch, where nobody wrote down whose they are.
STRETCH = 200


class Block(NamedTuple):
    """Rows, and whether their agents are held out: 1, 0, or −1 when nobody wrote them down."""

    points: np.ndarray
    gradients: np.ndarray
    held: np.ndarray

    def some(self, rows: slice) -> "Block":
        return Block(*(part[rows] for part in self))


@dataclass
class Rows:
    """The rows of an Observer.

    Parameters
    ----------
    dim
        Dimension of the points.
    most
        The number of rows that are kept.
    seed
        Of which agents and stretches are held out.
    rate
        The forgetting rate: with one, stretches are short enough for several to be remembered at any time.

    Attributes
    ----------
    waiting
        Rows that do not yet make a block.
    recent
        The last rows that were taken in.
    taken
        How many were.
    by_agent
        Whether agents are held out; else, because they are few and all or none of them were, stretches.
    """

    dim: int
    most: int
    seed: int = 0
    rate: float | None = None
    waiting: Block = field(init=False)
    recent: Recent = field(init=False)
    taken: int = field(default=0, init=False)
    by_agent: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        nothing = np.zeros((0, self.dim))
        self.waiting = Block(nothing, nothing, np.zeros(0, np.int8))
        self.recent = Recent(self.dim, self.most)

    @property
    def seen(self) -> int:
        return self.taken + len(self.waiting.points)

    def blocks(self, new: Observations) -> Iterator[Block]:
        """Whole blocks of what waits and what is new; the rest waits."""
        if new.agents is None:
            held = np.full(len(new), -1, np.int8)
        else:
            held = agents_held_out(new.agents, self.seed, new.agent_names).astype(np.int8)
        rows = Block(new.points.astype(float), new.gradients.astype(float), held)
        if len(self.waiting.points):
            rows = Block(*(np.concatenate(parts) for parts in zip(self.waiting, rows, strict=True)))
        whole = len(rows.points) // BLOCK * BLOCK
        for first in range(0, whole, BLOCK):
            yield rows.some(slice(first, first + BLOCK))
        self.waiting = Block(*(part[whole:].copy() for part in rows))

    def take(self, block: Block) -> np.ndarray:
        """Keep a block; which of its rows are held out."""
        count = len(block.points)
        length = STRETCH if self.rate is None else max(1, min(STRETCH, int(0.1 / self.rate)))
        stretches = in_held_stretch(self.taken + np.arange(count), length)
        held = np.where((block.held >= 0) & self.by_agent, block.held == 1, stretches)
        self.taken += count
        self.recent.add(block.points, block.gradients, held)
        return held

    def settle(self, enough: int) -> None:
        """Decide anew which of the kept rows are held out; with ``enough`` of them, by what rule from now on."""
        held = split(self.recent.held, self.seed)
        if len(held) >= enough and (held != self.recent.held).any():
            self.by_agent = False
        self.recent.held[:] = held

    def check(self) -> None:
        """Raise unless there are as many gradients as points, of as many dimensions, and counts are counts."""
        kept = self.recent.points, self.recent.gradients, self.recent.held
        for points, gradients, held in (self.waiting, kept):
            if not (points.shape == gradients.shape == (len(held), self.dim) and held.ndim == 1):
                raise ValueError(f"its rows are of shapes {points.shape}, {gradients.shape} and {held.shape}")
        if self.taken < 0:
            raise ValueError("its row counts are negative")


def split(held: np.ndarray, seed: int) -> np.ndarray:
    """Which of the rows that are kept are held out: as they came or, where that is all or none, stretches."""
    return held if balanced(held) else stretches_held_out(len(held), seed)
