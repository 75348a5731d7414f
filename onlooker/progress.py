"""A progress bar with rate and time left, on a terminal; elsewhere, silence. It never breaks a run."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Protocol

__all__ = ["Report", "progress"]


class Report(Protocol):
    def __call__(self, done: int) -> None: ...


@contextlib.contextmanager
def progress(label: str, total: int, chains: int, show: bool | None = None) -> Iterator[Report]:
    """``report(done)`` moves the bar; ``show=None`` means: when standard error is a terminal."""

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
            rate = f"{speed * chains / 1e6:.1f} M chain-steps/s" if speed else ""
            bar.update(task, completed=done, rate=rate)

    try:
        yield report
    finally:
        with contextlib.suppress(Exception):
            bar.stop()
