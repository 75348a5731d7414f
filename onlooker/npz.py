"""Arrays in a .npz archive, read without trust: what a header promises is held against the bytes that are there.

A damaged header may promise terabytes, an archive may unpack to them, and an array of objects is a pickle: all three
are refused before anything is allocated or run.
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

from onlooker.check import in_short

__all__ = ["Archive", "BrokenArchiveError", "opened"]

# Bytes that one compressed byte can stand for: deflate has no more than 1032.
MOST_UNPACKED = 1100
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class BrokenArchiveError(ValueError):
    """An archive, or an array in it, that cannot be read."""


class Archive:
    """Arrays by name, each read when it is asked for."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        assert file.fp is not None
        self._file, self._size = file, file.fp.seek(0, os.SEEK_END)
        self._members = {info.filename.removesuffix(".npy"): info for info in file.infolist()}

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __getitem__(self, name: str) -> np.ndarray:
        with _in_our_words():
            info = self._members[name]
            self._check_header(info)
            with self._file.open(info) as member:
                array = np.lib.format.read_array(member, allow_pickle=False)
            if array.dtype.kind == "U" and (_code_points(array) > sys.maxunicode).any():
                raise BrokenArchiveError("it holds words of what are no characters")
            return array

    def _check_header(self, info: zipfile.ZipInfo) -> None:
        if info.file_size > MOST_UNPACKED * min(info.compress_size, self._size):
            raise BrokenArchiveError(f"it cannot unpack to the {info.file_size} bytes that it promises")
        with self._file.open(info) as member:
            version = np.lib.format.read_magic(member)
            if version not in HEADERS:
                raise BrokenArchiveError(f"it is an array of the unknown version {version[0]}.{version[1]}")
            shape, _, kind = HEADERS[version](member)
            if kind.hasobject:
                raise BrokenArchiveError("it holds pickled objects, and nothing is ever unpickled")
            promised, there = math.prod(shape) * kind.itemsize, info.file_size - member.tell()
        if promised != there or min(shape, default=0) < 0:
            raise BrokenArchiveError(f"its header promises {promised} bytes and there are {there}")


def _code_points(words: np.ndarray) -> np.ndarray:
    return np.frombuffer(words.tobytes(), np.dtype(np.uint32).newbyteorder(words.dtype.byteorder))


@contextmanager
def opened(source: Any) -> Iterator[Archive]:
    """An archive, from a path or a file of bytes."""
    with _in_our_words():
        file = zipfile.ZipFile(source)
    with file:
        yield Archive(file)


@contextmanager
def _in_our_words() -> Iterator[None]:
    """Parsers of what is broken fail in many ways; a disk that does not answer is another matter."""
    try:
        yield
    except (BrokenArchiveError, MemoryError):
        raise
    except Exception as error:
        # An offset that is nonsense is an invalid argument.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise BrokenArchiveError(in_short(error)) from None
