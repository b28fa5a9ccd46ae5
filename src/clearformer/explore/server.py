"""Serving the application on this machine: a port, connections that must not wait, an end."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearformer.escape import escape_text
from clearformer.explore.limits import CONNECTIONS, REQUEST_SECONDS, STALLED_SECONDS


class PromptProtocol(H11Protocol):
    """Closes a connection whose request does not arrive, or whose answer is not read, in time.

    uvicorn has no such limits, and an application is called too late: a client that sends or
    reads a byte now and then would hold its connection for ever.
    """

    seconds = REQUEST_SECONDS
    stalled_seconds = STALLED_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._stalled: asyncio.TimerHandle | None = None
        self._begin()

    def data_received(self, data: bytes) -> None:
        if self._timer is None:
            self._begin()
        super().data_received(data)
        if self._is_whole():
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        self._is_read()
        super().connection_lost(exc)

    def _is_whole(self) -> bool:
        """Whether no request is on its way: neither its head nor its body."""
        state = self.conn.their_state
        if state is h11.IDLE:  # between two requests, unless the next has begun
            return not self.conn.trailing_data[0]
        return state is not h11.SEND_BODY

    def _begin(self) -> None:
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(self.seconds, self._late)

    def _arrived(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()
            self._wait_for_reader()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_read()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        """A connection that is closed waits for what was not read yet: not for ever."""
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.stalled_seconds, self.transport.abort)

    def _is_read(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


class EscapedFormatter(logging.Formatter):
    """Log records and their tracebacks, with control characters shown: they may quote a request."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_text(super().format(record))


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"escaped": {"()": EscapedFormatter, "fmt": "%(levelname)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "escaped"}},
    "loggers": {"uvicorn": {"handlers": ["stderr"], "propagate": False}},
}


class Server(uvicorn.Server):
    """uvicorn, on a socket that is bound before it starts: the address is known at once."""

    grace = 2  # seconds for open streams to end

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=PromptProtocol,
                ws="none",
                log_config=LOGGING,
                log_level="error",
                access_log=False,
                server_header=False,
                limit_concurrency=CONNECTIONS,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=self.grace,
            )
        )
        self.app = app
        self.socket = bound(host, port)

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def serve_here(self) -> None:
        """Until Ctrl-C."""
        self.run(sockets=[self.socket])

    @contextmanager
    def in_background(self) -> Iterator[str]:
        """In a thread; gives the address."""
        thread = threading.Thread(target=self.serve_here, daemon=True)
        thread.start()
        try:
            while not self.started:
                if not thread.is_alive():
                    raise RuntimeError("the server did not start")
                threading.Event().wait(0.01)
            yield f"http://127.0.0.1:{self.port}"
        finally:
            self.should_exit = True
            thread.join(self.grace + 10)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Streams end first; whoever still waits for a model is let go without a word."""
        self.app.state.explorer.closing = True
        logging.getLogger("uvicorn.error").disabled = True
        try:
            await super().shutdown(sockets)
        finally:
            logging.getLogger("uvicorn.error").disabled = False

    def capture_signals(self) -> Any:
        if threading.current_thread() is threading.main_thread():
            return super().capture_signals()
        return _nothing()


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def bound(host: str, port: int) -> socket.socket:
    """A socket on this port, or on a free one if somebody has it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
    except OSError as problem:
        raise ValueError(f"there is no host {host!r}: {problem.strerror}") from None
    found = socket.socket(family, kind, protocol)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(address)
        found.listen(CONNECTIONS)  # whoever comes before the server has started waits for it
    except OSError as problem:
        found.close()
        if port == 0:
            raise ValueError(f"nobody can listen on {host}: {problem.strerror}") from None
        return bound(host, 0)
    return found
