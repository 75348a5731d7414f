"""The rows of an Observer: those of an incomplete block, the last ones that were taken in, and which are held out.

Rows are taken in by blocks of a hundred, so that the sums do not depend on how rows are divided into calls.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from onlooker.data.buffer import Recent
from onlooker.data.observations import Observations
from onlooker.data.splits import agent_numbers, agents_held_out, balanced, in_held_stretch, stretches_held_out
from onlooker.live.settings import SETTINGS

__all__ = ["Block", "Rows", "split"]


class Block(NamedTuple):
    """Consecutive rows.

    Attributes
    ----------
    points
        (n, dim): the points.
    gradients
        (n, dim): the gradients.
    held
        (n,): 1 if the row's agent is held out, 0 if it is fitted, −1 if the agent is unknown.
    agents
        (n,): a number for the row's agent, −1 if the agent is unknown.
    """

    points: np.ndarray
    gradients: np.ndarray
    held: np.ndarray
    agents: np.ndarray

    def some(self, rows: slice) -> "Block":
        """The block of these rows only."""
        return Block(*(part[rows] for part in self))


@dataclass
class Rows:
    """The rows of an Observer.

    Parameters
    ----------
    dim
        Dimension of the points.
    most
        Largest number of rows kept.
    seed
        Seed of the choice of agents and stretches that are held out.
    rate
        Forgetting rate; with a high one, stretches are shorter, so that several have weight at any time.

    Attributes
    ----------
    waiting
        Rows of the incomplete block.
    recent
        The last rows that were taken in.
    taken
        Number of rows that were taken in.
    by_agent
        Whether agents are held out; otherwise stretches are, because the held-out agents had nearly all rows or none.
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
        self.waiting = Block(nothing, nothing, np.zeros(0, np.int8), np.zeros(0, int))
        self.recent = Recent(self.dim, self.most)

    @property
    def seen(self) -> int:
        """Number of rows, including those of the incomplete block."""
        return self.taken + len(self.waiting.points)

    def blocks(self, new: Observations) -> Iterator[Block]:
        """Iterate over the complete blocks of the waiting and the new rows, and keep the rest waiting."""
        if new.agents is None:
            held, agents = np.full(len(new), -1, np.int8), np.full(len(new), -1)
        else:
            held = agents_held_out(new.agents, self.seed, new.agent_names).astype(np.int8)
            agents = agent_numbers(new.agents, new.agent_names)
        rows = Block(new.points.astype(float), new.gradients.astype(float), held, agents)
        if len(self.waiting.points):
            rows = Block(*(np.concatenate(parts) for parts in zip(self.waiting, rows, strict=True)))
        size = SETTINGS.block
        whole = len(rows.points) // size * size
        for first in range(0, whole, size):
            yield rows.some(slice(first, first + size))
        self.waiting = Block(*(part[whole:].copy() for part in rows))

    def take(self, block: Block) -> np.ndarray:
        """Keep a block; return the mask of its rows that are held out."""
        count, length = len(block.points), SETTINGS.stretch
        if self.rate is not None:
            length = max(1, min(length, int(SETTINGS.stretch_lifetimes / self.rate)))
        stretches = in_held_stretch(self.taken + np.arange(count), length)
        held = np.where((block.held >= 0) & self.by_agent, block.held == 1, stretches)
        self.taken += count
        self.recent.add(block.points, block.gradients, held, block.agents)
        return held

    def settle(self, enough: int) -> None:
        """Hold out stretches of the kept rows if their agents are not balanced.

        If ``enough`` rows are kept, later rows follow the same rule.
        """
        held = split(self.recent.held, self.seed)
        if len(held) >= enough and (held != self.recent.held).any():
            self.by_agent = False
        self.recent.held[:] = held

    def check(self) -> None:
        """Raise a ValueError unless points, gradients and masks have matching shapes and counts are not negative."""
        kept = Block(self.recent.points, self.recent.gradients, self.recent.held, self.recent.agents)
        for points, gradients, held, agents in (self.waiting, kept):
            known = held.ndim == 1 and held.shape == agents.shape
            if not (known and points.shape == gradients.shape == (len(held), self.dim)):
                raise ValueError(f"its rows are of shapes {points.shape}, {gradients.shape} and {held.shape}")
        if self.taken < 0:
            raise ValueError("its row counts are negative")


def split(held: np.ndarray, seed: int) -> np.ndarray:
    """Mask of the held-out rows: ``held`` itself or, if it holds out nearly all rows or nearly none, stretches."""
    return held if balanced(held) else stretches_held_out(len(held), seed)
