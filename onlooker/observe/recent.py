"""The last rows of a stream, in bounded memory; adding one costs the same however many there are."""

from dataclasses import dataclass, field

import numpy as np

__all__ = ["Recent"]

# Rows there is room for at first, and at the least beyond those that are kept.
ROOM = 1024


@dataclass
class Recent:
    """Points and gradients (n, dim), and which of them are held out.

    Parameters
    ----------
    dim
        Of the points.
    most
        How many rows are kept.
    """

    dim: int
    most: int
    _columns: tuple[np.ndarray, np.ndarray, np.ndarray] = field(init=False)
    _first: int = field(default=0, init=False)
    _end: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._columns = self._room(ROOM)

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def points(self) -> np.ndarray:
        return self._columns[0][self._first : self._end]

    @property
    def gradients(self) -> np.ndarray:
        return self._columns[1][self._first : self._end]

    @property
    def held(self) -> np.ndarray:
        return self._columns[2][self._first : self._end]

    def add(self, points: np.ndarray, gradients: np.ndarray, held: np.ndarray | bool = False) -> None:
        new = len(points)
        if self._end + new > len(self._columns[0]):
            self._make_room(new)
        for column, rows in zip(self._columns, (points, gradients, held), strict=True):
            column[self._end : self._end + new] = rows
        self._end += new
        self.cut(self.most)

    def copy(self) -> "Recent":
        """The rows that are kept, in arrays of their own."""
        other = Recent(self.dim, self.most)
        other._columns, other._end = (self.points.copy(), self.gradients.copy(), self.held.copy()), len(self)
        return other

    def cut(self, most: int) -> None:
        """Keep so many of the last rows only."""
        self._first = max(self._first, self._end - most)

    def _room(self, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.zeros((rows, self.dim)), np.zeros((rows, self.dim)), np.zeros(rows, bool)

    def _make_room(self, new: int) -> None:
        """Move the rows to the front of arrays with a quarter more room than they and the new ones need."""
        count = len(self)
        columns = self._room(count + new + max(ROOM, count // 4))
        for column, old in zip(columns, self._columns, strict=True):
            column[:count] = old[self._first : self._end]
        self._columns, self._first, self._end = columns, 0, count
