"""Work beside the loop that serves all pages, in threads that nobody waits for when the program ends."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

__all__ = ["beside"]

T = TypeVar("T")


async def beside(work: Callable[..., T], *given: Any) -> T:
    """What ``work(*given)`` gives, or raises. An executor's threads would be waited for at the end, Ctrl-C or not."""
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
        # The loop may be gone by now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, *outcome)

    Thread(target=run, daemon=True).start()
    return await done
