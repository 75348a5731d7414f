"""Threads of linear algebra: one for small matrices, and one library's at a time for large ones.

Waking a pool of threads costs more than the algebra of small matrices. NumPy and SciPy come with a pool each, and after
every call the threads of a pool wait for the next one on a processor: where calls of both alternate, they take the
processors from each other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["numpy_threads", "one_thread"]


class _Limit:
    """The limit of chosen libraries in force, and the number of callers inside it; the last to leave lifts it."""

    def __init__(self, chosen: Callable[[str], bool]) -> None:
        # Only BLAS libraries already loaded are limited; NumPy's and SciPy's are.
        libraries = ThreadpoolController()
        paths = [library.filepath for library in libraries.lib_controllers if chosen(library.filepath)]
        self.controller = libraries.select(filepath=paths)
        self.lock = Lock()
        self.inside = 0
        self.limiter: Any = None

    def enter(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.limiter = self.controller.limit(limits=1, user_api="blas")
            self.inside += 1

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limiter.restore_original_limits()


@cache
def _every_library() -> _Limit:
    return _Limit(lambda path: True)


@cache
def _scipy() -> _Limit:
    # The libraries of both wheels bear the name of SciPy; their folders do not.
    return _Limit(lambda path: Path(path).parent.name.startswith("scipy"))


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit NumPy's and SciPy's linear algebra to one thread inside the block."""
    with _limited(_every_library()):
        yield


@contextmanager
def numpy_threads() -> Iterator[None]:
    """Limit SciPy's linear algebra to one thread inside the block, if it has a library of its own."""
    with _limited(_scipy()):
        yield


@contextmanager
def _limited(limit: _Limit) -> Iterator[None]:
    limit.enter()
    try:
        yield
    finally:
        limit.leave()
