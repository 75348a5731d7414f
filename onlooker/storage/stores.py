"""Object stores by their addresses: s3://bucket/runs, gs://bucket/runs, abfs://container/runs.

A `StorePath` has those members of `pathlib.Path` that a log and a checkpoint need. An object appears whole or not at
all, so nothing is written under another name first. What a store answers is read whole before it is parsed: an error of
the store is an `OSError`, and never mistaken for a torn file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs

from onlooker.core.messages import in_short

__all__ = ["Place", "StorePath", "as_place"]

SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss")
# Objects up to this size are read in one piece; a log's shards have 8 to 16 MiB.
AT_ONCE = 1 << 28
# Bytes at the end of an object that hold the footer of nearly every shard.
TAIL = 1 << 16
# What stores say, and what it means.
MEANINGS = (
    (("NO_SUCH_BUCKET", "ContainerNotFound", "Bucket not found"), "there is no such bucket"),
    (("ACCESS_DENIED", "AccessDenied", "status 403", "PERMISSION_DENIED"), "access is denied; check your credentials"),
    (
        ("status 301", "status 307", "PermanentRedirect"),
        "the bucket is in another region; add ?region=… to the address",
    ),
    (("AuthorizationHeaderMalformed",), "the bucket is in another region; add ?region=… to the address"),
    (("NETWORK_CONNECTION", "Couldn't resolve", "timed out"), "it cannot be reached"),
    (("SLOW_DOWN", "SERVICE_UNAVAILABLE", "status 503"), "it is too busy, after several attempts; try again later"),
)


@dataclass(frozen=True, order=True)
class StorePath:
    """A path in an object store.

    Attributes
    ----------
    scheme
        "s3", "gs" or "abfs".
    key
        The bucket, and the path in it.
    options
        Options after the question mark of an address, such as ``region=eu-west-1``.
    """

    scheme: str
    key: str
    options: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.key}"

    def __truediv__(self, name: str) -> "StorePath":
        return StorePath(self.scheme, f"{self.key}/{name}", self.options)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> "StorePath":
        """The path without its last part."""
        return StorePath(self.scheme, self.key.rpartition("/")[0], self.options)

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return Path(self.name).stem

    @property
    def suffix(self) -> str:
        """The suffix of the name, with its dot."""
        return Path(self.name).suffix

    def absolute(self) -> "StorePath":
        """This path, which is absolute."""
        return self

    def is_dir(self) -> bool:
        """Whether there are objects below this path."""
        with self._plain_errors():
            return self._store.get_file_info(self.key).type == pa.fs.FileType.Directory

    def exists(self) -> bool:
        """Whether there is an object here, or one below."""
        with self._plain_errors():
            return self._store.get_file_info(self.key).type != pa.fs.FileType.NotFound

    def files(self) -> list[tuple[str, int, int]]:
        """Path below this one, size, and time of the last change in ns, of every object below."""
        bucket = self.key.partition("/")[0]
        with self._plain_errors():
            found = self._store.get_file_info(pa.fs.FileSelector(self.key, recursive=True, allow_not_found=True))
            if not found and self._store.get_file_info(bucket).type == pa.fs.FileType.NotFound:
                raise StoreError(f"{self}: there is no such bucket.")
        return [
            (info.path[len(self.key) + 1 :], info.size, info.mtime_ns or 0)
            for info in found
            if info.type == pa.fs.FileType.File
        ]

    def size_and_time(self) -> tuple[int, int]:
        """Size of the object, and time of its last change in ns."""
        with self._plain_errors():
            info = self._store.get_file_info(self.key)
        return info.size or 0, info.mtime_ns or 0

    def read_bytes(self) -> bytes:
        """The whole object."""
        with self._plain_errors(), self._store.open_input_file(self.key) as file:
            return bytes(file.read())

    def write_bytes(self, content: bytes) -> None:
        """Write the object: it appears when all of it has been sent."""
        with self._plain_errors(), self._store.open_output_stream(self.key) as file:
            file.write(content)

    def opened(self) -> Any:
        """The object as an Arrow file, in memory unless it is very large."""
        with self._plain_errors():
            file = self._store.open_input_file(self.key)
            return file if file.size() > AT_ONCE else pa.BufferReader(file.read_buffer())

    def end(self) -> Any:
        """The end of the object as an Arrow file, from which a footer can be read; all of it if the footer is long."""
        with self._plain_errors(), self._store.open_input_file(self.key) as file:
            size = file.size()
            tail = file.read_at(min(TAIL, size), max(0, size - TAIL))
        length = int.from_bytes(tail[-8:-4], "little") if len(tail) >= 8 else 0
        return pa.BufferReader(tail) if length + 8 <= len(tail) else self.opened()

    @property
    def _store(self) -> "pa.fs.FileSystem":
        with self._plain_errors():
            return _store_of(self.scheme, self.key.partition("/")[0], self.options)

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Errors of the store as one sentence that names the path."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, StoreError):
                raise
            said = str(error)
            for words, meaning in MEANINGS:
                if any(word in said for word in words):
                    raise StoreError(f"{self}: {meaning}.") from None
            if isinstance(error, FileNotFoundError):
                raise FileNotFoundError(f"{self} does not exist.") from None
            raise StoreError(f"{self}: {in_short(said)}.") from None


class StoreError(OSError):
    """What a store answered instead of what was asked for."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        # As an error of the operating system: the object may be whole.
        self.errno = 5
        self.strerror = text

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> Any:
        return StoreError, (self.strerror,)


Place = Path | StorePath


@cache
def _store_of(scheme: str, bucket: str, options: str) -> "pa.fs.FileSystem":
    return pa.fs.FileSystem.from_uri(f"{scheme}://{bucket}{'?' if options else ''}{options}")[0]


def as_place(path: Any) -> Place:
    """A path on a disk, or in a store if it is an address such as s3://bucket/runs."""
    if isinstance(path, StorePath):
        return path
    scheme, found, rest = str(path).partition("://")
    if not found:
        return Path(path)
    if scheme == "file":
        return Path(rest)
    if scheme not in SCHEMES:
        raise ValueError(f"{path} is an address of another kind; give a path, or s3://…, gs://… or abfs://….")
    key, _, options = rest.partition("?")
    return StorePath(scheme, key.strip("/"), options)
