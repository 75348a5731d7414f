"""The page, served to this machine alone: http://127.0.0.1:PORT, until Ctrl-C.

Nothing listens on another address, no page of another origin may open a socket, and downloads go to whoever asks under
the server's own name only.
"""

import asyncio
import errno
import io
import logging
import signal
import socket
import sys
import tempfile
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

from onlooker.live.beside import beside
from onlooker.live.page import Page
from onlooker.live.watch import Watch, jump_in_words
from onlooker.reconstruction import Reconstruction
from onlooker.summary import write_result

__all__ = ["PORT", "serve"]

ADDRESS = "127.0.0.1"
PORT = 5006
# Seconds that a thread may hold on to Python while others wait: with four at work, Python's own 5 ms add up to a third
# of the pictures.
SWITCH = 0.001
# Milliseconds after which a page that was closed is forgotten, and between two looks for such.
FORGOTTEN, LOOKED_FOR = 4000, 1000


def _print(sentence: str) -> None:
    print(sentence, flush=True)


def serve(watch: Watch, port: int | None = None, command: str = "", say: Callable[[str], None] = _print) -> None:
    """Serve the page of a watch until told to stop.

    Parameters
    ----------
    watch
        It is started and stopped here.
    port
        By default 5006, or any that is free if that is not; 0 for any that is free.
    command
        What was typed, for the downloads to say how they came about.
    say
        Tells the terminal.
    """
    chosen = _free(port, say)
    # Of a page that was closed while something was on its way to it, there is nothing to say.
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
    say(f"the page is at http://{ADDRESS}:{chosen} (Ctrl-C ends it)")
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


class _Pages:
    """The pages that are open, and what the terminal hears of them."""

    def __init__(self, watch: Watch, say: Callable[[str], None]) -> None:
        self._watch, self._say = watch, say
        self._open = 0

    def open(self, document: Document) -> None:
        self._open += 1
        self._say(f"a page was opened; {self._open} open")
        Page(self._watch, document)
        document.on_session_destroyed(self._close)

    def _close(self, context: Any) -> None:
        self._open -= 1
        self._say(f"a page was closed; {self._open} open, and watching goes on")

    async def tell(self) -> None:
        """Say in the terminal, too, what is the matter, what to keep in mind, and when the reward jumped."""
        told, noted, jumped = "", set[str](), -1
        while True:
            status = self._watch.status()
            message = " ".join(filter(None, [status.message, status.waiting_for if status.over else ""]))
            if message != told:
                self._say(message or "rows are coming.")
            for note in self._watch.notes:
                if note not in noted:
                    self._say(note)
            new = [jump for jump in status.jumps if jump.at > jumped]
            for jump in new:
                self._say(jump_in_words(jump))
            told, noted = message, noted | set(self._watch.notes)
            jumped = max([jumped, *(jump.at for jump in new)]) if status.jumps else -1
            await asyncio.sleep(0.5)


class _Download(RequestHandler):
    """A file that is made when it is asked for."""

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
            # Not enough was seen yet.
            self.set_status(503)
            self.finish(str(error))
            return
        self.set_header("Content-Type", self.kind)
        self.set_header("Cache-Control", "no-store")
        self.finish(content)

    def content(self) -> bytes:
        raise NotImplementedError

    def result(self) -> Reconstruction:
        """What the page shows."""
        if self._watch.look is None:
            raise ValueError("there is no picture yet; ask again later.")
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
    """R̂ as `Reconstruction.landscape` draws it."""

    kind = "image/png"

    def content(self) -> bytes:
        drawn = io.BytesIO()
        self.result().landscape().savefig(drawn, dpi=150, format="png")
        return drawn.getvalue()


def _free(port: int | None, say: Callable[[str], None]) -> int:
    """A port that can be listened on: the one that was asked for or, if none was, the usual one or any other."""
    wanted = PORT if port is None else port
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((ADDRESS, wanted))
        except OSError as error:
            if port is not None:
                reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
                raise ValueError(
                    f"port {port} {reason}; give another with --port, or 0 for any that is free."
                ) from None
            say(f"port {wanted} is in use; taking another.")
            trial.bind((ADDRESS, 0))
        return trial.getsockname()[1]
