"""Small matrices on one thread: waking a pool of threads costs more than the algebra of a few hundred numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["one_thread"]


class _Limit:
    """The limit in force, and how many are within it: the last to leave lifts it."""

    def __init__(self) -> None:
        # Libraries that are loaded later stay as they are; NumPy's and SciPy's are.
        self.controller = ThreadpoolController()
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
def _limit() -> _Limit:
    return _Limit()


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it NumPy's and SciPy's linear algebra has one thread."""
    _limit().enter()
    try:
        yield
    finally:
        _limit().leave()
