"""Follow a log: the only way to read its new rows, in the order in which they were written, with their positions.

`available` reads the rows that are there now. A `Tail` waits for more: for a log that does not exist yet, that
disappears for a while, or whose last shard is still being copied. Its message says what it is waiting for. If another
log replaces the one that was followed, it starts again with that one.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from onlooker.data.log.formats import Rows, UnreadableError, suffixes
from onlooker.data.log.reader import Log, NoRowsError, open_log
from onlooker.data.log.shards import Position, names_in, stamp_of
from onlooker.data.trainer import with_decay
from onlooker.storage.stores import Place, StorePath

__all__ = ["Batch", "Tail", "available", "check_same_log", "until"]

# Seconds between two checks of a folder: short against the 5 s in which a recorder writes a shard.
PATIENCE = 0.2
# The same for a store, where every check is a request, and writers send a shard a minute.
PATIENCE_IN_STORES = 5.0


class Batch(NamedTuple):
    """Consecutive rows, in the order in which they were recorded.

    Attributes
    ----------
    points
        (n, dim) points visited.
    gradients
        (n, dim) ascent gradients.
    agents
        (n,) the agent that made each row; ``None`` if unknown.
    replaced
        Whether a new log starts here, so that earlier rows must be forgotten.
    log
        Name of the log that the rows come from; empty if they come from none.
    position
        Position in the log after these rows; reading ``after`` it gives the rows that follow.
    marks
        Numbers (n,) by name about what a trainer did; ``None`` if there are none that say something.
    """

    points: np.ndarray
    gradients: np.ndarray
    agents: np.ndarray | None
    replaced: bool = False
    log: str = ""
    position: str = ""
    marks: dict[str, np.ndarray] | None = None


def check_gradients(log: Log) -> None:
    """Raise unless the log has gradients."""
    if not log.has_gradients:
        raise ValueError(
            f"{log.path} has iterates without gradients, which cannot be followed; use onlooker.reconstruct on it."
        )


def check_same_log(log: Log, name: str) -> None:
    """Raise unless the log has this name; an empty name allows any log."""
    if name not in ("", log.name):
        raise ValueError(
            f"the observer has learnt from another log than {log.path}; use a new Observer, or another checkpoint."
        )


def available(log: Log, after: str = "", most: int | None = None) -> Iterator[Batch]:
    """Iterate over all rows that are there now, with gradients of what learners climb: with their weight decay.

    Parameters
    ----------
    log
        A log with gradients.
    after
        Position of an earlier batch, to continue after it.
    most
        Largest number of rows in a batch; default: the pieces in which the file is read.
    """
    check_gradients(log)
    for rows, position, shard, read in log.pieces(after):
        yield from _cut(log, rows, position, shard, read, most)


def until(log: Log, position: str, most: int | None = None) -> Iterator[Batch]:
    """Iterate once more over the rows up to the position of an earlier batch; other parameters as of `available`."""
    check_gradients(log)
    reached, now = Position.of(position), Position.of("")
    for shard in log.shard_names():
        last = reached.rows_of(shard)
        if last == 0 or shard in log.torn:
            continue
        for rows, read in log.rows_of(shard):
            end = read if last is None else min(read, last)
            some = rows.take(slice(0, len(rows.points) - (read - end)))
            now = now.after(shard, end)
            yield from _cut(log, some, now, shard, end, most)
            if end == last:
                break


def _cut(log: Log, rows: Rows, position: Position, shard: str, read: int, most: int | None) -> Iterator[Batch]:
    """A piece of a shard in batches, with their positions; ``read`` rows of the shard have been read by its end."""
    assert rows.gradients is not None
    count = len(rows.points)
    size = most or count
    for first in range(0, count, size):
        some = rows.take(slice(first, first + size))
        assert some.gradients is not None
        reached = position.after(shard, read - count + first + len(some.points))
        gradients = with_decay(some.points, some.gradients, log.trainer, log.projection)
        yield Batch(some.points, gradients, some.agents, False, log.name, str(reached), some.marks)


@dataclass
class Tail:
    """A log that may not exist yet and may still grow.

    Parameters
    ----------
    path
        A folder of shards, which may still be empty, or a file, which is read once.
    descent
        Whether its gradients are those of a loss; overrides what the log says.

    Attributes
    ----------
    message
        What it is waiting for; empty while rows arrive.
    log
        The log; ``None`` until it exists.
    replaced
        Number of times that another log has replaced it.
    """

    path: Place
    descent: bool | None = None
    message: str = field(default="", init=False)
    log: Log | None = field(default=None, init=False)
    replaced: int = field(default=0, init=False)
    _looked: "_Looks" = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.path, StorePath):
            # An error if there is no such bucket.
            self.path.files()
        elif not self.path.exists() and (self.path.suffix in suffixes or not self.path.absolute().parent.is_dir()):
            # A recorder cannot create a folder here: raise open_log's error that the path does not exist.
            open_log(self.path)
        self._open(self._looks())

    def batches(
        self, stopped: Callable[[], bool], after: str = "", name: str = "", most: int | None = None
    ) -> Iterator[Batch]:
        """Iterate over rows as they arrive, until ``stopped()`` or, for a file, until all of it has been read.

        Parameters
        ----------
        stopped
            Called between batches; true to stop.
        after
            Position to continue from.
        name
            Name of the log that the position belongs to; it is an error if another log is there.
        most
            Largest number of rows in a batch.
        """
        position, looked_like, replaced = after, None, self.replaced
        while not stopped():
            try:
                looks_like = self._looks()
                if looks_like != looked_like or not looks_like.shards:
                    self._open(looks_like)
                    another = self.replaced > replaced
                    position, replaced = "" if another else position, self.replaced
                    if self.log is not None:
                        check_same_log(self.log, "" if replaced else name)
                        for batch in available(self.log, position, most):
                            position = batch.position
                            yield batch._replace(replaced=another)
                            another = False
                            if stopped():
                                return
                        if not looks_like.folder:
                            self.message = f"all rows of {self.path} have been read."
                            return
                    looked_like = looks_like
            except FileNotFoundError:
                looked_like = None
                self.message = (
                    f"{self.path} was moved or deleted. The last estimate is still shown; watching continues when the "
                    "log is back."
                )
            except OSError as error:
                looked_like = None
                self.message = f"{self.path} cannot be read ({error.strerror}); trying again."
            time.sleep(PATIENCE_IN_STORES if isinstance(self.path, StorePath) else PATIENCE)

    def _looks(self) -> "_Looks":
        """The state of the files, from which one can tell whether the log has grown or was replaced."""
        if not self.path.is_dir() and (self.path.exists() or self.log is not None):
            stamp = stamp_of(self.path)
            return _Looks(False, 1, stamp, stamp)
        shards = sorted(names_in(self.path)) if self.path.exists() else []
        if shards:
            return _Looks(True, len(shards), *(stamp_of(self.path, name) for name in (shards[0], shards[-1])))
        if self.log is not None:
            raise FileNotFoundError
        return _Looks(True, 0, (), ())

    def _open(self, looks_like: "_Looks") -> None:
        """Open the log if it has rows, and notice if it was replaced."""
        if not looks_like.shards:
            self.message = self._awaited()
            return
        if self.log is not None:
            if looks_like.folder != self._looked.folder:
                raise ValueError(
                    f"{self.path} changed from a folder to a file, or from a file to a folder; restart onlooker watch."
                )
            if looks_like.last != self._looked.last:
                # A shard that looked torn may have been incomplete then.
                self.log.torn.discard(self._looked.last[0])
            if looks_like.first == self._looked.first:
                self._looked, self.message = looks_like, ""
                return
        try:
            log = open_log(self.path, descent=self.descent)
        except NoRowsError:
            self.message = self._awaited()
            return
        except UnreadableError as error:
            if not looks_like.folder:
                raise
            self.message = f"{error} Waiting for other shards."
            return
        check_gradients(log)
        if self.log is not None and log.name != self.log.name:
            self.replaced += 1
        self.log, self._looked, self.message = log, looks_like, ""

    def _awaited(self) -> str:
        if not self.path.exists():
            return f"{self.path} does not exist yet; waiting for a recorder to create it."
        if isinstance(self.path, StorePath) or not self.path.is_dir() or not any(True for _ in self.path.iterdir()):
            return f"{self.path} has no rows yet; waiting for the first."
        return f"{self.path} has files, but no rows of a log yet; waiting for the first."


class _Looks(NamedTuple):
    """Whether a log is a folder, its number of shards, and the stamps of the first and the last shard."""

    folder: bool
    shards: int
    first: tuple[Any, ...]
    last: tuple[Any, ...]
