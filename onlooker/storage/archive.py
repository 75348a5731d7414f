"""Read arrays from an untrusted .npz archive: sizes in headers are checked against the bytes in the file.

A damaged header may claim terabytes, an archive may unpack to them, and an array of objects is a pickle. All three are
rejected before anything is allocated or run.
"""

import errno
import math
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from onlooker.core.messages import in_short

__all__ = ["Archive", "BrokenArchiveError", "opened"]

# Upper bound on bytes per compressed byte: deflate reaches at most 1032.
MOST_UNPACKED = 1100
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class BrokenArchiveError(ValueError):
    """An archive, or an array in it, cannot be read."""


class Archive:
    """Arrays by name, each read on access."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        assert file.fp is not None
        self._file, self._size = file, file.fp.seek(0, os.SEEK_END)
        self._members = {info.filename.removesuffix(".npy"): info for info in file.infolist()}

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __getitem__(self, name: str) -> np.ndarray:
        with _as_broken_archive():
            info = self._members[name]
            self._check_header(info)
            with self._file.open(info) as member:
                array = np.lib.format.read_array(member, allow_pickle=False)
            if array.dtype.kind == "U" and (_code_points(array) > sys.maxunicode).any():
                raise BrokenArchiveError("it contains strings that are not valid Unicode")
            return array

    def _check_header(self, info: zipfile.ZipInfo) -> None:
        if info.file_size > MOST_UNPACKED * min(info.compress_size, self._size):
            raise BrokenArchiveError(f"it cannot unpack to the {info.file_size} bytes that it claims")
        with self._file.open(info) as member:
            version = np.lib.format.read_magic(member)
            if version not in HEADERS:
                raise BrokenArchiveError(f"its array format has the unknown version {version[0]}.{version[1]}")
            shape, _, kind = HEADERS[version](member)
            if kind.hasobject:
                raise BrokenArchiveError("it contains pickled objects, which are never unpickled")
            claimed, present = math.prod(shape) * kind.itemsize, info.file_size - member.tell()
        if claimed != present or min(shape, default=0) < 0:
            raise BrokenArchiveError(f"its header claims {claimed} bytes but there are {present}")


def _code_points(strings: np.ndarray) -> np.ndarray:
    return np.frombuffer(strings.tobytes(), np.dtype(np.uint32).newbyteorder(strings.dtype.byteorder))


@contextmanager
def opened(source: Any) -> Iterator[Archive]:
    """Open an archive from a path or a binary file."""
    with _as_broken_archive():
        file = zipfile.ZipFile(source)
    with file:
        yield Archive(file)


@contextmanager
def _as_broken_archive() -> Iterator[None]:
    """Turn any error of a parser into a BrokenArchiveError; errors of the disk pass unchanged."""
    try:
        yield
    except (BrokenArchiveError, MemoryError):
        raise
    except Exception as error:
        # A damaged offset raises an OSError too: "invalid argument".
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise BrokenArchiveError(in_short(error)) from None
