"""A progress bar on a terminal (silent elsewhere; its failures never stop a run), and the handling of Ctrl-C."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

__all__ = ["Report", "interrupts", "progress"]


class Report(Protocol):
    def __call__(self, done: int) -> None: ...


@contextlib.contextmanager
def progress(label: str, total: int | None, chains: int | None, show: bool | None = None) -> Iterator[Report]:
    """Show a progress bar with rate and time left; ``report(done)`` moves it.

    Parameters
    ----------
    label
        Text before the bar.
    total
        The final value of ``done``; ``None`` if it is unknown.
    chains
        The number of chains, for a rate in chain-steps; ``None`` for a rate in rows.
    show
        Whether to show the bar; default: if standard error is a terminal.
    """

    def silent(done: int) -> None:
        return None

    if not (sys.stderr.isatty() if show is None else show):
        yield silent
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.start()
        task = bar.add_task(label, total=total, rate="")
    except Exception:
        yield silent
        return

    def report(done: int) -> None:
        with contextlib.suppress(Exception):
            speed = bar.tasks[0].speed
            unit = "rows" if chains is None else "chain-steps"
            rate = f"{speed * (chains or 1) / 1e6:.1f} M {unit}/s" if speed else ""
            bar.update(task, completed=done, rate=rate)

    try:
        yield report
    finally:
        with contextlib.suppress(Exception):
            bar.stop()


@contextlib.contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether Ctrl-C was pressed, so that a run can end between two steps.

    A second Ctrl-C raises KeyboardInterrupt at once. Outside the main thread signals cannot be handled: there the
    function always returns False.
    """
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
