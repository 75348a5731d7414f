"""Write files and folders atomically: whole or not at all.

Content is written under a hidden name beside the final one and then renamed. A reader of a file finds the old content
or the new one, at any moment and after any crash. A folder that replaces another is missing for the moment between two
renames.
"""

import contextlib
import os
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock

__all__ = ["hidden_in", "publish", "replace_file", "replacing_folder", "sweep"]

# Prefix of hidden names.
HIDDEN = ".writing-"
# Age in seconds after which a hidden file is assumed to be left over from a crash: no write takes that long.
ABANDONED = 3600.0
# Threads of one process take turns, because they share the hidden name of a file.
WRITING = Lock()


def replace_file(path: Path, content: bytes) -> Path:
    """Write a file and force it onto the disk. What a crash leaves behind is overwritten by the next write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.writing")
    with WRITING, hidden.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        os.replace(hidden, path)
    return path


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield the path of a folder to write, which replaces ``path`` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=HIDDEN, ignore_cleanup_errors=True) as scratch:
        written = Path(scratch) / "written"
        yield written
        older = Path(scratch) / "older"
        if path.exists():
            os.replace(path, older)
        try:
            os.replace(written, path)
        except OSError:
            if older.exists():
                os.replace(older, path)
            raise


def hidden_in(folder: Path) -> Path:
    """A unique hidden name in a folder, to be published later."""
    return folder / f"{HIDDEN}{uuid.uuid4().hex}"


def publish(hidden: Path, names: Iterable[Path]) -> Path:
    """Give a complete file the first free name; no two of many writers get the same one. Returns the name."""
    with hidden.open("rb+") as file:
        os.fsync(file.fileno())
    shown = next(name for name in names if _linked(hidden, name))
    # On some systems a folder cannot be opened.
    with contextlib.suppress(OSError):
        handle = os.open(shown.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    return shown


def _linked(hidden: Path, name: Path) -> bool:
    try:
        os.link(hidden, name)
    except FileExistsError:
        return False
    except OSError:
        # A file system without hard links, where only one writer at a time is safe.
        if name.exists():
            return False
        hidden.rename(name)
    return True


def sweep(folder: Path) -> None:
    """Remove old hidden files, left by writers that were killed; recent ones may still be in use."""
    for path in folder.glob(f"{HIDDEN}*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()
