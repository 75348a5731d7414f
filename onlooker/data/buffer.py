"""The last rows of a stream, in bounded memory; adding a row takes amortized constant time."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Recent"]

# Initial capacity in rows, and the smallest spare capacity when the arrays grow: enough to reallocate rarely.
ROOM = 1024


@dataclass
class Recent:
    """The last rows: points and gradients (n, dim), a mask of the rows that are held out, and the rows' agents.

    Parameters
    ----------
    dim
        Dimension of the points.
    most
        Largest number of rows kept.
    """

    dim: int
    most: int
    _columns: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] = field(init=False)
    _first: int = field(default=0, init=False)
    _end: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._columns = self._room(ROOM)

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def points(self) -> np.ndarray:
        """The points (n, dim)."""
        return self._columns[0][self._first : self._end]

    @property
    def gradients(self) -> np.ndarray:
        """The gradients (n, dim)."""
        return self._columns[1][self._first : self._end]

    @property
    def held(self) -> np.ndarray:
        """Mask (n,) of the rows that are held out."""
        return self._columns[2][self._first : self._end]

    @property
    def agents(self) -> np.ndarray:
        """Number (n,) of each row's agent; −1 if unknown."""
        return self._columns[3][self._first : self._end]

    def known_agents(self, rows: Any = slice(None)) -> np.ndarray | None:
        """The agents of these rows; ``None`` unless all of them are known."""
        agents = self.agents[rows]
        return agents if (agents >= 0).all() else None

    def add(
        self,
        points: np.ndarray,
        gradients: np.ndarray,
        held: np.ndarray | bool = False,
        agents: np.ndarray | int = -1,
    ) -> None:
        """Append rows (n, dim), and drop the oldest rows beyond ``most``."""
        new = len(points)
        if self._end + new > len(self._columns[0]):
            self._make_room(new)
        for column, rows in zip(self._columns, (points, gradients, held, agents), strict=True):
            column[self._end : self._end + new] = rows
        self._end += new
        self.cut(self.most)

    def copy(self) -> "Recent":
        """A copy with arrays of its own."""
        other = Recent(self.dim, self.most)
        points, gradients, held, agents = (part[self._first : self._end].copy() for part in self._columns)
        other._columns, other._end = (points, gradients, held, agents), len(self)
        return other

    def cut(self, most: int) -> None:
        """Keep only the last ``most`` rows."""
        self._first = max(self._first, self._end - most)

    def _room(self, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return np.zeros((rows, self.dim)), np.zeros((rows, self.dim)), np.zeros(rows, bool), np.full(rows, -1)

    def _make_room(self, new: int) -> None:
        """Move the rows to the front of larger arrays, with a quarter more capacity than all rows need."""
        count = len(self)
        columns = self._room(count + new + max(ROOM, count // 4))
        for column, old in zip(columns, self._columns, strict=True):
            column[:count] = old[self._first : self._end]
        self._columns, self._first, self._end = columns, 0, count
