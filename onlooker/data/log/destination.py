"""Where a writer's shards go: a folder that any number of writers share, or an object store.

In a folder, a shard is written under a hidden name that readers ignore, flushed to disk, and then linked to the next
free number. Linking fails if that shard exists already, so writers need no lock. A store has no links, but an object
appears whole or not at all: there every writer, in every process, has a folder of its own.

One log has one name, also when many writers begin at once: whoever links the first shard, or notes the name in the
store, decides.
"""

import os
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet

from onlooker.data.log import formats
from onlooker.data.log.shards import NAME, name_noted, names_in
from onlooker.data.marks import MARKS
from onlooker.storage.atomic import hidden_in, publish, replace_file, sweep
from onlooker.storage.stores import Place, StorePath

__all__ = ["Destination", "destination_for"]

# Numbers that are tried one after the other before the folder is listed: other writers may have taken thousands.
TRIED = 64
# The first shard of a folder.
FIRST = "0000000000.parquet"


class Destination(Protocol):
    """Where shards go."""

    def is_new(self) -> bool:
        """Whether there are no shards yet."""
        ...

    def publish(self, table: Callable[[str], pa.Table], name: str) -> str:
        """Write a shard: whole, or not at all.

        Parameters
        ----------
        table
            The rows, for a name of the log.
        name
            That name; if it is empty, the log has the one that was noted first, by this writer or another.

        Returns
        -------
        name
            The name of the log.
        """
        ...

    def put(self, name: str, content: bytes) -> None:
        """Write a file beside the shards."""
        ...

    def renew(self) -> None:
        """Make this another writer's: called in a child of the process."""
        ...


def destination_for(folder: Place) -> Destination:
    """The destination of a writer to this folder, which is created if it does not exist."""
    return InStore(folder) if isinstance(folder, StorePath) else InFolder(folder)


def _write(table: pa.Table, file: pa.NativeFile) -> None:
    pyarrow.parquet.write_table(
        table,
        file,
        compression="none",
        use_dictionary=["agent", "learning_rate", *MARKS],
        write_statistics=False,
        write_page_checksum=True,
    )


def _write_on_disk(table: pa.Table, path: Path) -> None:
    # Arrow's own file object: Python's needs the GIL for every page and would stall the training.
    with pa.OSFile(os.fsencode(path), "wb") as file:
        _write(table, file)


class InFolder:
    """A folder on a disk."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        self.folder = folder
        self._next: int | None = None

    def is_new(self) -> bool:
        return not names_in(self.folder)

    def publish(self, table: Callable[[str], pa.Table], name: str) -> str:
        hidden, tried = hidden_in(self.folder), name or uuid.uuid4().hex
        try:
            _write_on_disk(table(tried), hidden)
            if name or (shown := self._first(hidden)) is None:
                name = name or self._named(tried)
                if name != tried:
                    _write_on_disk(table(name), hidden)
                shown = publish(hidden, self._names())
            self._next = int(shown.stem) + 1
        finally:
            hidden.unlink(missing_ok=True)
        return name or tried

    def _first(self, hidden: Path) -> Path | None:
        """Publish the first shard of a log, whose name all others have; None if another writer did."""
        try:
            return publish(hidden, [self.folder / FIRST])
        except StopIteration:
            return None

    def _named(self, tried: str) -> str:
        """The name that the first shard has."""
        try:
            return formats.metadata(self.folder / FIRST).get("log", tried)
        except (formats.UnreadableError, FileNotFoundError):
            return tried

    def put(self, name: str, content: bytes) -> None:
        replace_file(self.folder / name, content)

    def renew(self) -> None:
        return None

    def _names(self) -> Iterator[Path]:
        """Paths for the next shard: the numbers from the last one on that is known."""
        number, tried = self._next, 0
        while True:
            if number is None or tried == TRIED:
                listed = [int(stem) for stem in map(_stem, names_in(self.folder)) if stem.isdecimal()]
                number, tried = max(max(listed, default=-1) + 1, number or 0), 0
            yield self.folder / f"{number:010d}.parquet"
            number, tried = number + 1, tried + 1


def _stem(name: str) -> str:
    return name.removesuffix(".parquet")


class InStore:
    """A folder in an object store."""

    def __init__(self, folder: StorePath) -> None:
        self.folder = folder
        # Listed once, so that a bucket that does not exist is noticed before training.
        folder.files()
        self.renew()

    def is_new(self) -> bool:
        return not names_in(self.folder)

    def publish(self, table: Callable[[str], pa.Table], name: str) -> str:
        if not name and not (name := name_noted(self.folder)):
            # Of several that are sent at once, the store keeps one: what it has then is the name.
            (self.folder / NAME).write_bytes(uuid.uuid4().hex.encode())
            name = name_noted(self.folder)
        sink = pa.BufferOutputStream()
        _write(table(name), sink)
        (self.folder / self.writer / f"{self._number:010d}.parquet").write_bytes(sink.getvalue())
        self._number += 1
        return name

    def put(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)

    def renew(self) -> None:
        host = "".join(letter for letter in socket.gethostname() if letter.isalnum() or letter == "-")[:40]
        self.writer, self._number = f"{host or 'writer'}-{os.getpid()}-{uuid.uuid4().hex[:12]}", 0
