"""The HTTP server: binding a port, connection timeouts, and a clean shutdown."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearformer.escape import escape_text
from clearformer.http_server.limits import MAX_CONNECTIONS, REQUEST_SECONDS, STALLED_SECONDS


class TimeoutProtocol(H11Protocol):
    """Closes a connection whose request does not arrive, or whose response is not read, in time.

    uvicorn has no such timeouts, so that a client could hold a connection for ever by sending or
    reading a byte now and then.
    """

    seconds = REQUEST_SECONDS
    stalled_seconds = STALLED_SECONDS

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._request_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        if self._request_timer is None:
            self._expect_request()
        super().data_received(data)
        if not self._is_receiving():
            self._request_timer = _cancelled(self._request_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_timer = _cancelled(self._request_timer)
        self._reader_timer = _cancelled(self._reader_timer)
        super().connection_lost(exc)

    def _is_receiving(self) -> bool:
        """Whether the head or the body of a request is still to come."""
        state = self.conn.their_state
        if state is h11.IDLE:  # between two requests, unless the next has begun
            return bool(self.conn.trailing_data[0])
        return state is h11.SEND_BODY

    def _expect_request(self) -> None:
        self._request_timer = self.loop.call_later(self.seconds, self._request_timeout)

    def _request_timeout(self) -> None:
        self._request_timer = None
        if not self.transport.is_closing():
            self.transport.close()
            self._expect_reader()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reader_timer = _cancelled(self._reader_timer)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._expect_reader()

    def _expect_reader(self) -> None:
        """Abort the connection if the client does not read; a closed one waits for it too."""
        if self._reader_timer is None:
            self._reader_timer = self.loop.call_later(self.stalled_seconds, self.transport.abort)


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer; gives None for the attribute that held it."""
    if timer is not None:
        timer.cancel()
    return None


class EscapedFormatter(logging.Formatter):
    """Log records with escaped control characters, as they may quote a request."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_text(super().format(record))


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"escaped": {"()": EscapedFormatter, "fmt": "%(levelname)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "escaped"}},
    "loggers": {
        "uvicorn": {"handlers": ["stderr"], "propagate": False},
        "asyncio": {"level": "ERROR"},  # it warns of clients that have gone
    },
}


class Server(uvicorn.Server):
    """uvicorn on a socket that is bound in advance, so that the port is known before it starts."""

    grace = 2  # seconds for open streams to end

    def __init__(
        self, app: FastAPI, host: str, port: int, max_connections: int = MAX_CONNECTIONS
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=TimeoutProtocol,
                ws="none",
                log_config=LOGGING,
                log_level="error",
                access_log=False,
                server_header=False,
                limit_concurrency=max_connections,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=self.grace,
            )
        )
        self.app = app
        self.socket = bind_socket(host, port)

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    @property
    def shutdown_seconds(self) -> float:
        """How long the server may take to stop: the grace, and time on a busy machine."""
        return self.grace + 60

    def serve_here(self) -> None:
        """Serve until Ctrl-C."""
        self.run(sockets=[self.socket])

    @contextmanager
    def in_background(self) -> Iterator[str]:
        """Serve in a thread; gives the address."""
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
            thread.join(self.shutdown_seconds)
            if thread.is_alive():
                raise RuntimeError(
                    f"the server did not stop within {self.shutdown_seconds:g} seconds"
                )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what is in progress first; requests that are dropped then leave no log line."""
        await self.before_shutdown()
        logging.getLogger("uvicorn.error").disabled = True
        try:
            await super().shutdown(sockets)
        finally:
            logging.getLogger("uvicorn.error").disabled = False

    async def before_shutdown(self) -> None:
        """Tell the application that the server is about to close."""

    def capture_signals(self) -> Any:
        if threading.current_thread() is threading.main_thread():
            return super().capture_signals()
        return nullcontext()


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket that listens on this port, or on a free one if it is taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
    except OSError as problem:
        raise ValueError(f"there is no host {host!r}: {problem.strerror}") from None
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
        bound.listen(MAX_CONNECTIONS)  # early connections wait until the server has started
    except OSError as problem:
        bound.close()
        if port != 0 and problem.errno == errno.EADDRINUSE:
            return bind_socket(host, 0)
        place = f"port {port} of {host}" if port else host
        raise ValueError(
            f"cannot listen on {place}: {problem.strerror}; choose another port or host"
        ) from None
    return bound
