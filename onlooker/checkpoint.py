"""A state in one small file: arrays by name, behind a line that says what it is and a digest that says it is whole.

It is written beside its place and renamed: whoever reads it, at any moment, finds the old one or the new one. Nothing
is unpickled.
"""

import hashlib
import io
import os
from pathlib import Path
from threading import Lock

import numpy as np

from onlooker import npz

__all__ = ["packed", "read", "write"]

VERSION = 1
LONGEST_TITLE = 100
WRITING = Lock()


def write(path: Path, kind: str, arrays: bytes) -> None:
    """Arrays, as `packed`, of an object of some kind."""
    title = f"onlooker {kind} {VERSION}\n".encode()
    _replace(path, title + hashlib.sha256(title + arrays).digest() + arrays)


def packed(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read(path: Path, kind: str) -> dict[str, np.ndarray]:
    """What was written; a file that is something else, newer or damaged is refused."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist; give the file of a saved {kind}.") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder; give the file of a saved {kind}.") from None
    title, _, rest = content[:LONGEST_TITLE].partition(b"\n")
    words = title.decode(errors="replace").split(" ")
    if len(words) != 3 or words[:2] != ["onlooker", kind] or not words[2].isdecimal():
        raise ValueError(f"{path} does not hold the state of any {kind}; give the file of a saved one.")
    if int(words[2]) > VERSION:
        raise ValueError(f"{path} is of format {words[2]} and this Onlooker knows {VERSION}; install a newer one.")
    rest = content[len(title) + 1 :]
    digest, arrays = rest[:32], rest[32:]
    if hashlib.sha256(title + b"\n" + arrays).digest() != digest:
        raise ValueError(f"{path} is damaged: its content is not what was written; use an older copy.")
    try:
        with npz.opened(io.BytesIO(arrays)) as opened:
            return {name: opened[name] for name in opened}
    except npz.BrokenArchiveError as error:
        raise ValueError(f"{path} is damaged ({error}); use an older copy.") from None


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and onto the disk. What a crash leaves is overwritten the next time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.writing")
    with WRITING, hidden.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        os.replace(hidden, path)
