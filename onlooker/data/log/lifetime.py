"""The life of writers and recordings: closed when the program ends, and whole when it forks."""

import atexit
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

__all__ = ["close_at_exit", "thread", "through_forks"]

OPEN: "weakref.WeakSet[Any]" = weakref.WeakSet()


def through_forks(writer: Any) -> None:
    """Let a `LogWriter` be of use in both processes after a fork."""
    OPEN.add(writer)


def _hold() -> None:
    """Before a fork, wait until no thread writes: a child would wait forever for a lock held by another thread."""
    for writer in list(OPEN):
        writer._lock.acquire()
        if writer._under_way is not None:
            wait([writer._under_way])


def _let_go() -> None:
    for writer in list(OPEN):
        writer._lock.release()


def _begin_in_child() -> None:
    """In the child, drop the buffered rows, which the parent writes, and start a thread."""
    for writer in list(OPEN):
        writer._lock, writer._thread = threading.RLock(), thread()
        writer._count, writer._under_way = 0, None
        writer._destination.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_begin_in_child)


def thread() -> ThreadPoolExecutor:
    """The one thread that writes for a writer."""
    return ThreadPoolExecutor(1, thread_name_prefix="onlooker-log")


def close_at_exit(resource: Any) -> None:
    """Close the resource when the program ends, unless it is gone by then."""
    reference = weakref.ref(resource)

    def close() -> None:
        alive = reference()
        if alive is not None:
            alive.close()

    atexit.register(close)
