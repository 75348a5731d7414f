"""Sources of the rows that a page shows: a log that may still grow, or any object with the members of `Source`.

The message of a source says what is wrong with it. A log that disappears is waited for; if another log replaces it,
reading starts again with that one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from onlooker.core.messages import Message
from onlooker.core.settings import check_whole
from onlooker.data.log.reader import torn_shards
from onlooker.data.log.tail import Batch, Tail, available, check_same_log
from onlooker.data.projection import Projection, principal_components
from onlooker.storage.stores import Place

__all__ = ["GrowingLog", "Resumable", "Source"]

# Largest number of rows in a batch: a watch can stop, and save, between batches.
AT_ONCE = 2000
# Number of rows from which principal components are computed.
FIRST_ROWS = 1000

Values = Callable[[np.ndarray], np.ndarray]


class Source(Protocol):
    """Anything that can be watched.

    Attributes
    ----------
    name
        A short description, such as the path of a log.
    message
        What is wrong with it now, or what it is waiting for; empty otherwise.
    warnings
        Warnings about all of its rows.
    """

    @property
    def name(self) -> str: ...

    @property
    def message(self) -> str: ...

    @property
    def warnings(self) -> list[Message]: ...

    def batches(self, stopped: Callable[[], bool]) -> Iterator[Batch]:
        """Iterate over rows as they arrive, until the end or ``stopped()``; a ValueError if they cannot be used."""
        ...

    def coordinate(self, axis: int) -> str:
        """The name of a coordinate."""
        ...

    def truth(self, seen: int) -> Values | None:
        """The true reward after ``seen`` rows, as a function of points (n, dim); ``None`` if it is unknown."""
        ...


@runtime_checkable
class Resumable(Source, Protocol):
    """A source whose batches have the name of a log and a position in it."""

    def resume(self, log: str, position: str) -> None:
        """Start after a position in the log of this name; a ValueError if there is another log."""
        ...


@dataclass
class GrowingLog:
    """A log, from its first row on, followed as it grows.

    Parameters
    ----------
    path
        A folder of shards, which may still be empty, or a file, which is read once.
    descent
        Whether its gradients are those of a loss; overrides what the log says.
    components
        Number of principal components of the first points to watch; default: all coordinates.
    """

    path: Place
    descent: bool | None = None
    components: int | None = None
    _tail: Tail = field(init=False)
    _begin: tuple[str, str] = field(default=("", ""), init=False)
    _finding: str = field(default="", init=False)
    _projection: Projection | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.components is not None:
            check_whole(components=self.components)
        self._tail = Tail(self.path, self.descent)

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def message(self) -> str:
        return self._tail.message or self._finding

    @property
    def warnings(self) -> list[Message]:
        warnings = []
        if self._tail.log is not None and self._tail.log.torn:
            warnings.append(torn_shards(len(self._tail.log.torn)))
        if self._projection is not None:
            warnings.append(self._projection.warning)
        if self._tail.replaced:
            text = "another log replaced the one that was watched; watching started again with the new log."
            warnings.append(Message("log-replaced", text))
        return warnings

    def coordinate(self, axis: int) -> str:
        return f"θ({axis + 1})" if self.components is None else f"component {axis + 1}"

    def truth(self, seen: int) -> Values | None:
        return None

    def resume(self, log: str, position: str) -> None:
        if self._tail.log is not None:
            check_same_log(self._tail.log, log)
        self._begin = log, position

    def batches(self, stopped: Callable[[], bool]) -> Iterator[Batch]:
        name, position = self._begin
        rows = self._tail.batches(stopped, position, name, AT_ONCE)
        return rows if self.components is None else self._projected(rows, resumed=bool(position))

    def _projected(self, rows: Iterator[Batch], resumed: bool) -> Iterator[Batch]:
        first: list[Batch] = []
        for batch in rows:
            if batch.replaced:
                first, self._projection, resumed = [], None, False
            first.append(batch)
            if self._projection is None:
                # After resuming, the first rows are read again.
                points = self._points(self._earlier() if resumed else first)
                if len(points) < FIRST_ROWS:
                    self._finding = f"principal components need {FIRST_ROWS:,} rows; there are {len(points)} so far."
                    continue
                assert self.components is not None
                self._projection, self._finding = principal_components(points, self.components), ""
            along = self._projection
            for waiting in first:
                points, gradients = along.points(waiting.points), along.gradients(waiting.gradients)
                yield waiting._replace(points=points, gradients=gradients)
            first = []

    def _earlier(self) -> Iterator[Batch]:
        assert self._tail.log is not None
        return available(self._tail.log)

    def _points(self, batches: Iterable[Batch]) -> np.ndarray:
        """The first FIRST_ROWS finite points, or fewer."""
        finite, count = [], 0
        for batch in batches:
            finite.append(batch.points[np.isfinite(batch.points).all(axis=1)])
            count += len(finite[-1])
            if count >= FIRST_ROWS:
                break
        return np.concatenate(finite)[:FIRST_ROWS]
