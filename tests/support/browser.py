"""A real Chromium and a running `onlooker watch`, for tests and measurements of the page."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

__all__ = ["Terminal", "chromium", "until", "watching"]

# The browser runs without a screen, a sandbox or requests of its own to the network.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@contextmanager
def chromium():
    """Debian's Chromium, headless."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        yield browser
        browser.close()


class Terminal:
    """The output of a running `onlooker watch`.

    Parameters
    ----------
    process
        The process.

    Attributes
    ----------
    said
        Its output so far.
    """

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process
        self.said = ""
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.said += line

    def wait_for(self, pattern: str, seconds: float = 60.0) -> re.Match:
        """Wait until the output matches a pattern; return the match, or fail with the whole output."""
        end = time.monotonic() + seconds
        while (found := re.search(pattern, self.said)) is None:
            over = self.process.poll() is not None or time.monotonic() > end
            assert not over, f"the output does not contain {pattern!r}:\n{self.said}"
            time.sleep(0.05)
        return found

    def interrupt(self) -> int:
        """Interrupt the process as Ctrl-C does; return its exit code."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=20)
        self._listener.join(timeout=5)
        return code


@contextmanager
def watching(*arguments: object) -> Iterator[tuple[str, Terminal]]:
    """Run `onlooker watch …` on any free port; yield the address of its page and its terminal."""
    command = [sys.executable, "-m", "onlooker", "watch", "--port", "0", *map(str, arguments)]
    # The output is a buffered pipe, as for most users.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "bufsize": 1}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        terminal = Terminal(process)
        try:
            yield terminal.wait_for(r"http://127\.0\.0\.1:\d+").group(), terminal
        finally:
            process.kill()


def until(true, seconds: float = 30.0, every: float = 0.1):
    """Call ``true()`` until it returns something true, and return that; fail after some seconds."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, f"the condition is not true within {seconds} s"
        time.sleep(every)
    return found
