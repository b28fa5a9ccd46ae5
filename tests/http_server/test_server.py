"""The server: a bound port, and what happens before it closes (tests/explore has the timeouts)."""

import asyncio
import errno
import socket
import threading
import urllib.request
from types import SimpleNamespace

import pytest
from fastapi import FastAPI

from clearformer.http_server.server import Server, bind_socket
from clearformer.serve.limits import ServeLimits
from clearformer.serve.server import Server as DrainingServer


def test_it_serves_and_tells_before_it_closes():
    told = []

    class Telling(Server):
        async def before_shutdown(self):
            told.append(self.port)

    app = FastAPI()
    app.add_api_route("/", lambda: "hello")
    server = Telling(app, "127.0.0.1", 0, max_connections=5)
    port = server.port
    with server.in_background() as url:
        assert urllib.request.urlopen(url, timeout=300).read() == b'"hello"'
        assert not told
    assert told == [port]


def test_server_that_does_not_stop_is_an_error():
    release = threading.Event()

    class Slow(Server):
        shutdown_seconds = 0.01

        def serve_here(self):
            self.thread = threading.current_thread()
            super().serve_here()

        async def before_shutdown(self):
            while not release.is_set():
                await asyncio.sleep(0.01)

    server = Slow(FastAPI(), "127.0.0.1", 0)
    with (
        pytest.raises(RuntimeError, match=r"the server did not stop within 0\.01 seconds"),
        server.in_background(),
    ):
        pass
    release.set()
    server.thread.join(300)
    assert not server.thread.is_alive()


def test_shutdown_may_take_as_long_as_the_drain():
    app = FastAPI()
    app.state.service = SimpleNamespace(limits=ServeLimits(drain_seconds=1000))
    server = DrainingServer(app, "127.0.0.1", 0)
    server.socket.close()
    assert server.shutdown_seconds > 1000 + server.grace


def test_port_that_cannot_be_used_is_not_called_taken(monkeypatch):
    """Another port is chosen only in place of one that is in use."""
    bind = socket.socket.bind

    def refuse_80(self, address):
        if address[1] == 80:
            raise PermissionError(errno.EACCES, "Permission denied")
        bind(self, address)

    monkeypatch.setattr(socket.socket, "bind", refuse_80)
    with pytest.raises(ValueError, match=r"cannot listen on port 80 of 127\.0\.0\.1: Permission"):
        bind_socket("127.0.0.1", 80)
    with pytest.raises(ValueError, match="cannot listen on port 80"):
        DrainingServer(FastAPI(), "127.0.0.1", 80)
