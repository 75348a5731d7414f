"""The shards of a folder, on a disk or in a store, and their order; positions in a log.

Shards lie in the folder itself, ``<number>.parquet``, and are read in the order of their names; or in a folder for each
writer, ``<writer>/<number>.parquet``. These are read in the order of (time of the first row, writer, number), where the
times of one writer never decrease. A position names, for each folder of shards, the last one that was read and the
number of its rows that were: a shard that appears late is read when it appears.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from onlooker.data.trainer import Trainer
from onlooker.storage.stores import Place, StorePath

__all__ = ["NAME", "Footer", "Position", "in_order", "name_noted", "names_in", "stamp_of"]

# The file in which writers note the name of their log: several may begin at once, and one name must win.
NAME = ".log"
# Longest name that is read: files may come from strangers.
LONGEST = 100


def name_noted(folder: Place) -> str:
    """The name of the log that its writers noted; empty if they did not."""
    try:
        return (folder / NAME).read_bytes()[:LONGEST].decode().strip()
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return ""


def names_in(folder: Place) -> list[str]:
    """The names of a folder's shards, as paths below it, in no order that is to be relied on.

    Folders below it are those of writers only if these have noted the log's name: else they are other logs.
    """
    if isinstance(folder, StorePath):
        names = [name for name, _, _ in folder.files()]
        return [name for name in names if _is_shard(name) and ("/" not in name or NAME in names)]
    found, folders, noted = [], [], False
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".parquet"):
                found.append(entry.name)
            elif entry.name == NAME:
                noted = True
            elif not entry.name.startswith(".") and entry.is_dir():
                folders.append(entry.name)
    for writer in folders if noted else []:
        found += [f"{writer}/{name}" for name in os.listdir(folder / writer)]
    return [name for name in found if _is_shard(name)]


def _is_shard(name: str) -> bool:
    """Whether a name is that of a shard: not hidden, and at most one folder deep."""
    parts = name.split("/")
    return name.endswith(".parquet") and len(parts) <= 2 and not any(part.startswith(".") for part in parts)


def in_order(names: Iterable[str], began: Mapping[str, float]) -> list[str]:
    """Shards in the order in which they are read; ``began`` has the time of each one in a writer's folder."""
    latest: dict[str, float] = {}
    keys = []
    for name in sorted(names):
        writer, _, _ = name.rpartition("/")
        # Those of the folder itself are older, and come first.
        time = began.get(name, 0.0) if writer else 0.0
        latest[writer] = max(latest.get(writer, 0.0), time)
        keys.append((latest[writer], writer, name))
    return [name for _, _, name in sorted(keys)]


def stamp_of(folder: Place, name: str = "") -> tuple[Any, ...]:
    """What changes if a shard of a folder, or a file, is replaced."""
    place = folder / name if name else folder
    if isinstance(place, StorePath):
        return name, *place.size_and_time()
    status = place.stat()
    return name or place.name, status.st_ino, status.st_size, status.st_mtime_ns


class Footer(NamedTuple):
    """What a shard says without being read.

    Attributes
    ----------
    rows
        Number of rows; −1 if the shard is torn.
    began
        Time at which its writer got the first row; 0 if unknown.
    trainer
        What it says about the trainer; ``None`` if it is torn.
    """

    rows: int
    began: float
    trainer: Trainer | None = None


class Position(NamedTuple):
    """How far a log was read.

    Attributes
    ----------
    read
        By the folder of shards (empty for the log's own): the last shard's name there, and the number of its rows.
    """

    read: Mapping[str, tuple[str, int]]

    @classmethod
    def of(cls, text: str) -> "Position":
        """The position that a text says: ``shard:rows``, separated by semicolons if there are several writers."""
        read = {}
        for part in filter(None, text.split(";")):
            shard, _, rows = part.rpartition(":")
            folder, _, name = shard.rpartition("/")
            read[folder] = name, int(rows) if rows.isdecimal() else 0
        return cls(read)

    def __str__(self) -> str:
        parts = (
            f"{folder}/{name}:{rows}" if folder else f"{name}:{rows}" for folder, (name, rows) in self.read.items()
        )
        return ";".join(sorted(parts))

    def rows_of(self, shard: str) -> int | None:
        """The number of a shard's rows that were read; ``None`` if a later one of its folder was read."""
        folder, _, name = shard.rpartition("/")
        last, rows = self.read.get(folder, ("", 0))
        return None if name < last else rows if name == last else 0

    def after(self, shard: str, rows: int) -> "Position":
        """The position after so many rows of a shard."""
        folder, _, name = shard.rpartition("/")
        return Position({**self.read, folder: (name, rows)})
