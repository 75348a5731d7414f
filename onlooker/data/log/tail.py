"""Follow a log: the only way to read its new rows, in the order in which they were written, with their positions.

`available` reads the rows that are there now. A `Tail` waits for more: for a log that does not exist yet, that
disappears for a while, or whose last shard is still being copied. Its message says what it is waiting for. If another
log replaces the one that was followed, it starts again with that one.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onlooker.data.log.formats import UnreadableError, suffixes
from onlooker.data.log.reader import Log, NoRowsError, open_log, shards_in
from onlooker.data.trainer import with_decay

__all__ = ["Batch", "Tail", "available", "check_same_log"]

# Seconds between two checks of a folder: short against the 5 s in which a recorder writes a shard.
PATIENCE = 0.2


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
    along = log.projection
    for rows, position in log.batches(after):
        assert rows.gradients is not None
        shard, _, read = position.rpartition(":")
        count = len(rows.points)
        size = most or count
        for first in range(0, count, size):
            some = rows.take(slice(first, first + size))
            assert some.gradients is not None
            end = int(read) - count + first + len(some.points)
            gradients = with_decay(some.points, some.gradients, log.trainer, along)
            yield Batch(some.points, gradients, some.agents, False, log.name, f"{shard}:{end}", some.marks)


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

    path: Path
    descent: bool | None = None
    message: str = field(default="", init=False)
    log: Log | None = field(default=None, init=False)
    replaced: int = field(default=0, init=False)
    _looked: "_Looks" = field(init=False)

    def __post_init__(self) -> None:
        if not self.path.exists() and (self.path.suffix in suffixes or not self.path.absolute().parent.is_dir()):
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
            time.sleep(PATIENCE)

    def _looks(self) -> "_Looks":
        """The state of the files, from which one can tell whether the log has grown or was replaced."""
        if not self.path.is_dir() and (self.path.exists() or self.log is not None):
            return _Looks(False, 1, _stamp(self.path), _stamp(self.path))
        shards = shards_in(self.path) if self.path.exists() else []
        if shards:
            return _Looks(True, len(shards), _stamp(shards[0]), _stamp(shards[-1]))
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
        if not self.path.is_dir() or not any(True for _ in self.path.iterdir()):
            return f"{self.path} has no rows yet; waiting for the first."
        return f"{self.path} has files, but no rows of a log yet; waiting for the first."


class _Looks(NamedTuple):
    """Whether a log is a folder, its number of shards, and the stamps of the first and the last shard."""

    folder: bool
    shards: int
    first: tuple[Any, ...]
    last: tuple[Any, ...]


def _stamp(path: Path) -> tuple[str, int, int, int]:
    status = path.stat()
    return path.name, status.st_ino, status.st_size, status.st_mtime_ns
