"""Format numbers and digests, for every file format."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

__all__ = ["array_parts", "check_format", "digest_of"]


def check_format(path: Any, found: float, known: int) -> None:
    """Reject a file of a later format than this version knows.

    Parameters
    ----------
    path
        The file, for the error.
    found
        Its format number.
    known
        The latest format number known; earlier ones can be read as well.
    """
    if not found <= known:
        raise ValueError(f"{path} has format {found:g} and this Onlooker reads up to {known}; install a newer one.")


def digest_of(parts: Iterable[bytes | memoryview]) -> "hashlib._Hash":
    """SHA-256 of the concatenated parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest


def array_parts(arrays: Iterable[np.ndarray]) -> Iterator[bytes | memoryview]:
    """The dtype, shape and content of each array, as parts for `digest_of`."""
    for array in arrays:
        yield f"{array.dtype}{array.shape}".encode()
        yield np.ascontiguousarray(array).data
