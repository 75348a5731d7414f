"""Serve the page to this machine only, at http://127.0.0.1:PORT, until Ctrl-C.

The server listens on no other address. Web sockets are opened only to pages of the same origin, and downloads are
answered only if the request names this server as its host.
"""

import asyncio
import errno
import io
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.document import Document
from bokeh.server.server import Server
from tornado.ioloop import IOLoop
from tornado.web import RequestHandler

from onlooker.core.messages import Message
from onlooker.live.page.background import beside
from onlooker.live.page.features import FeaturePage, FeatureWatch
from onlooker.live.page.page import Page
from onlooker.live.page.watch import Watch, jump_in_words
from onlooker.reconstruction.folder import write_result
from onlooker.reconstruction.result import Reconstruction

__all__ = ["PORT", "leave", "serve"]

ADDRESS = "127.0.0.1"
PORT = 5006
# Seconds that a thread may hold Python's lock while others wait: with four busy threads, the default of 5 ms costs a
# third of the updates.
SWITCH = 0.001
# Milliseconds after which a closed page is discarded, and between two checks for closed pages.
FORGOTTEN, LOOKED_FOR = 4000, 1000


def _print(text: str) -> None:
    print(text, flush=True)


def serve(
    watch: Watch | FeatureWatch, port: int | None = None, command: str = "", say: Callable[[str], None] = _print
) -> None:
    """Serve the page of a watch until Ctrl-C or SIGTERM.

    Parameters
    ----------
    watch
        The watch; this function starts and stops it.
    port
        The port; 0 for any free port. Default: 5006, or any free port if it is in use.
    command
        The command line, which downloads quote to say how they were computed.
    say
        Called with every line for the terminal.
    """
    chosen = _free(port, say)
    # Bokeh warns about every page that is closed during an update; that is not a problem.
    logging.getLogger("bokeh").setLevel(logging.ERROR)
    hosts = [f"{name}:{chosen}" for name in (ADDRESS, "localhost")]
    pages = _Pages(watch, say)
    asked = {"watch": watch, "hosts": hosts, "command": command}
    server = Server(
        {"/": Application(FunctionHandler(pages.open))},
        address=ADDRESS,
        port=chosen,
        allow_websocket_origin=hosts,
        extra_patterns=[("/estimate.zip", _Estimate, asked), ("/picture.png", _Picture, asked)],
        unused_session_lifetime_milliseconds=FORGOTTEN,
        check_unused_sessions_milliseconds=LOOKED_FOR,
    )
    sys.setswitchinterval(SWITCH)
    loop = IOLoop.current()
    stops = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: loop.add_callback_from_signal(loop.stop)) for number in stops]
    watch.start()
    server.start()
    say(f"watching {watch.source.name}")
    say(f"the page is at http://{ADDRESS}:{chosen} (press Ctrl-C to stop)")
    loop.add_callback(pages.tell)
    try:
        loop.start()
    finally:
        for number, handler in zip(stops, before, strict=True):
            signal.signal(number, handler)
        server.stop()
        watch.stop()
        status = watch.status()
        jumps = {0: "never jumped", 1: "jumped once"}.get(len(status.jumps), f"jumped {len(status.jumps)} times")
        say(f"\nsaw {status.seen:,} observations; the reward {jumps}.")


def leave() -> None:
    """Exit at once if a fit is running: it cannot be interrupted, and must not run while Python shuts down."""
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class _Pages:
    """Counts the open pages and reports to the terminal."""

    def __init__(self, watch: Watch | FeatureWatch, say: Callable[[str], None]) -> None:
        self._watch, self._say = watch, say
        self._open = 0

    def open(self, document: Document) -> None:
        self._open += 1
        self._say(f"page opened ({self._open} open)")
        if isinstance(self._watch, FeatureWatch):
            FeaturePage(self._watch, document)
        else:
            Page(self._watch, document)
        document.on_session_destroyed(self._close)

    def _close(self, context: Any) -> None:
        self._open -= 1
        self._say(f"page closed ({self._open} open); watching continues")

    async def tell(self) -> None:
        """Report problems, warnings and jumps of the reward in the terminal, each once."""
        told, warned, jumped = "", set[Message](), -1
        while True:
            status = self._watch.status()
            message = " ".join(filter(None, [status.message, status.waiting_for if status.over else ""]))
            if message != told:
                self._say(message or "rows are arriving.")
            for warning in self._watch.warnings:
                if warning not in warned:
                    self._say(str(warning))
            new = [jump for jump in status.jumps if jump.at > jumped]
            for jump in new:
                self._say(jump_in_words(jump))
            told, warned = message, warned | set(self._watch.warnings)
            jumped = max([jumped, *(jump.at for jump in new)]) if status.jumps else -1
            await asyncio.sleep(0.5)


class _Download(RequestHandler):
    """A file that is written when it is requested."""

    kind = ""

    def initialize(self, watch: Watch, hosts: list[str], command: str) -> None:
        self._watch, self._hosts, self._command = watch, hosts, command

    async def get(self) -> None:
        if self.request.host not in self._hosts:
            self.send_error(403)
            return
        try:
            content = await beside(self.content)
        except ValueError as error:
            # There are not enough observations yet.
            self.set_status(503)
            self.finish(str(error))
            return
        self.set_header("Content-Type", self.kind)
        self.set_header("Cache-Control", "no-store")
        self.finish(content)

    def content(self) -> bytes:
        raise NotImplementedError

    def result(self) -> Reconstruction:
        """The estimate that the page shows."""
        if self._watch.look is None:
            raise ValueError("there is no estimate yet; try again later.")
        return self._watch.look.result


class _Estimate(_Download):
    """The result, its pictures and summary.json, in one archive."""

    kind = "application/zip"

    def content(self) -> bytes:
        archive = io.BytesIO()
        with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(archive, "w") as packed:
            folder = Path(scratch) / "estimate"
            folder.mkdir()
            write_result(folder, self.result(), source=self._watch.source.name, command=self._command)
            for file in sorted(folder.rglob("*")):
                packed.write(file, file.relative_to(scratch))
        return archive.getvalue()


class _Picture(_Download):
    """The figure of `Reconstruction.landscape`."""

    kind = "image/png"

    def content(self) -> bytes:
        drawn = io.BytesIO()
        self.result().landscape().savefig(drawn, dpi=150, format="png")
        return drawn.getvalue()


def _free(port: int | None, say: Callable[[str], None]) -> int:
    """A free port: the one requested or, by default, 5006 or else any."""
    wanted = PORT if port is None else port
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((ADDRESS, wanted))
        except OSError as error:
            if port is not None:
                reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
                raise ValueError(
                    f"port {port} {reason}; give another with --port, or --port 0 for any free port."
                ) from None
            say(f"port {wanted} is in use; using another.")
            trial.bind((ADDRESS, 0))
        return trial.getsockname()[1]
