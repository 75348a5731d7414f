"""A state in one file: a title line, a SHA-256 digest, and named arrays as .npz. Nothing is unpickled."""

import io
from typing import Any

import numpy as np

from onlooker.storage import archive as npz
from onlooker.storage.atomic import replace_file
from onlooker.storage.signature import check_format, digest_of
from onlooker.storage.stores import Place, StorePath

__all__ = ["packed", "read", "write"]

VERSION = 1
LONGEST_TITLE = 100


def write(path: Any, kind: str, arrays: bytes) -> Any:
    """Write the arrays, as `packed`, of a state of this kind; returns the path."""
    title = f"onlooker {kind} {VERSION}\n".encode()
    content = title + digest_of([title, arrays]).digest() + arrays
    if isinstance(path, StorePath):
        path.write_bytes(content)
    else:
        replace_file(path, content)
    return path


def packed(arrays: dict[str, np.ndarray]) -> bytes:
    """Arrays as the bytes of a .npz archive."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read(path: Place, kind: str) -> dict[str, np.ndarray]:
    """Read the arrays of a state; a file of another kind, a newer or a damaged one is rejected."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist; give the file of a saved {kind}.") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder; give the file of a saved {kind}.") from None
    title, _, rest = content[:LONGEST_TITLE].partition(b"\n")
    words = title.decode(errors="replace").split(" ")
    if len(words) != 3 or words[:2] != ["onlooker", kind] or not words[2].isdecimal():
        raise ValueError(f"{path} is not the file of a saved {kind}; give one that is.")
    check_format(path, int(words[2]), VERSION)
    rest = content[len(title) + 1 :]
    digest, arrays = rest[:32], rest[32:]
    if digest_of([title, b"\n", arrays]).digest() != digest:
        raise ValueError(f"{path} is damaged: its digest does not match; use an older copy.")
    try:
        with npz.opened(io.BytesIO(arrays)) as opened:
            return {name: opened[name] for name in opened}
    except npz.BrokenArchiveError as error:
        raise ValueError(f"{path} is damaged ({error}); use an older copy.") from None
