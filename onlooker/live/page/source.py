"""Sources of the rows that a page shows: a log that may still grow, or any object with the members of `Source`.

The message of a source says what is wrong with it. A log that disappears is waited for; if another log replaces it,
reading starts again with that one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from onlooker.core.messages import Message
from onlooker.core.settings import check_whole
from onlooker.data.live_components import FIRST, LiveComponents
from onlooker.data.log.reader import torn_shards
from onlooker.data.log.tail import Batch, Tail, check_same_log, until
from onlooker.data.observations import Observations
from onlooker.data.projection import Projection
from onlooker.data.trainer import about_trainer
from onlooker.storage.stores import Place

__all__ = ["GrowingLog", "Resumable", "Source"]

# Largest number of rows in a batch: a watch can stop, and save, between batches.
AT_ONCE = 2000
# Number of latest rows from which the shares of clipped and scaled ones are taken.
NOTED = 10_000

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
        Number of principal components of all rows so far to watch; default: all coordinates.
    """

    path: Place
    descent: bool | None = None
    components: int | None = None
    _tail: Tail = field(init=False)
    _begin: tuple[str, str] = field(default=("", ""), init=False)
    _finding: str = field(default="", init=False)
    _projection: Projection | None = field(default=None, init=False)
    _begun: bool = field(default=False, init=False)
    _marks: dict[str, np.ndarray] = field(default_factory=dict, init=False)

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
        log = self._tail.log
        if log is not None:
            nothing = np.zeros((0, log.dim))
            marks = dict(self._marks)
            warnings += about_trainer(
                Observations(nothing, nothing, marks=marks, trainer=log.trainer, projection=log.projection)
            )
            if log.projection is not None:
                warnings.append(log.projection.warning)
        if self._tail.replaced:
            text = "another log replaced the one that was watched; watching started again with the new log."
            warnings.append(Message("log-replaced", text))
        return warnings

    @property
    def sign_known(self) -> bool:
        """Whether a recorder read the gradients, so that no advice about their sign is of use."""
        return self._tail.log is not None and self._tail.log.trainer.recorded

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
        rows = self._noted(rows)
        return rows if self.components is None else self._projected(rows, position)

    def _noted(self, rows: Iterator[Batch]) -> Iterator[Batch]:
        """Keep some marks of each batch, for the warnings about the trainer."""
        for batch in rows:
            for name, values in (batch.marks or {}).items():
                self._marks[name] = np.concatenate([self._marks.get(name, values[:0]), values])[-NOTED:]
            yield batch

    def _projected(self, rows: Iterator[Batch], position: str) -> Iterator[Batch]:
        assert self.components is not None
        live = LiveComponents(self.components)
        if position:
            # After resuming, the rows up to there are read again, to find the components that were in use.
            for batch in self._until(position):
                live.add(_finite(batch))
            self._begun = live.projection is not None
        for batch in rows:
            if batch.replaced:
                live = LiveComponents(self.components)
            renewed = live.add(_finite(batch))
            self._projection = live.projection
            if live.projection is None:
                self._finding = f"principal components need {FIRST:,} rows; there are {live.rows} so far."
                continue
            self._finding = ""
            if renewed:
                # All earlier rows once more, along the directions that are in use now.
                yield self._again(batch, live.projection, replaced=batch.replaced or self._begun)
            else:
                yield _along(batch, live.projection)
            self._begun = True

    def _again(self, batch: Batch, along: Projection, replaced: bool) -> Batch:
        parts = [_along(one, along) for one in self._until(batch.position)]
        agents = None if batch.agents is None else np.concatenate([np.asarray(one.agents) for one in parts])
        return batch._replace(
            points=np.concatenate([one.points for one in parts]),
            gradients=np.concatenate([one.gradients for one in parts]),
            agents=agents,
            replaced=replaced,
        )

    def _until(self, position: str) -> Iterator[Batch]:
        """All rows up to a position."""
        assert self._tail.log is not None
        return until(self._tail.log, position, AT_ONCE)


def _finite(batch: Batch) -> np.ndarray:
    return batch.points[np.isfinite(batch.points).all(axis=1)]


def _along(batch: Batch, along: Projection) -> Batch:
    return batch._replace(points=along.points(batch.points), gradients=along.gradients(batch.gradients))
