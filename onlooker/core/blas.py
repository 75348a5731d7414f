"""Linear algebra of small matrices on one thread: waking a pool of threads would cost more than the algebra."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["one_thread"]


class _Limit:
    """The limit in force, and the number of callers inside it; the last to leave lifts it."""

    def __init__(self) -> None:
        # Only BLAS libraries already loaded are limited; NumPy's and SciPy's are.
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
    """Limit NumPy's and SciPy's linear algebra to one thread inside the block."""
    _limit().enter()
    try:
        yield
    finally:
        _limit().leave()
