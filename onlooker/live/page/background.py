"""Run work outside the event loop that serves all pages, in threads that do not delay the end of the program."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

__all__ = ["beside"]

T = TypeVar("T")


async def beside(work: Callable[..., T], *given: Any) -> T:
    """Await ``work(*given)`` in a daemon thread. Python waits for an executor's threads at exit, even on Ctrl-C."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(answer: Callable[[Any], None], value: Any) -> None:
        if not done.cancelled():
            answer(value)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], Any] = (done.set_result, work(*given))
        except Exception as error:
            outcome = (done.set_exception, error)
        # The loop may have been closed.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, *outcome)

    Thread(target=run, daemon=True).start()
    return await done
