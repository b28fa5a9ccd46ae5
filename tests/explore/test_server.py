"""The server: port selection and connection timeouts."""

import http.client
import logging
import socket
import sys
import threading
import time

import pytest
from starlette.responses import Response

from clearformer.explore.app import create_app
from clearformer.explore.library import Library
from clearformer.explore.server import Server
from clearformer.http_server.server import EscapedFormatter, TimeoutProtocol, bind_socket


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(TimeoutProtocol, "seconds", 0.3)
    with Server(create_app(Library([])), "127.0.0.1", 0).in_background() as url:
        host, port = url.removeprefix("http://").split(":")
        yield host, int(port)


def test_taken_port_falls_back_to_free_port():
    first = bind_socket("127.0.0.1", 0)
    port = first.getsockname()[1]
    second = bind_socket("127.0.0.1", port)
    assert second.getsockname()[1] != port
    first.close()
    second.close()
    with pytest.raises(ValueError, match="there is no host 'no such host'"):
        bind_socket("no such host", 0)


def test_early_connection_waits_for_start():
    server = Server(create_app(Library([])), "127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as early:
        early.sendall(b"GET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with server.in_background():
            assert early.recv(4096).startswith(b"HTTP/1.1 200")


def test_incomplete_request_times_out(impatient):
    for part in (b"", b"GET / HT", b"POST /api/traces HTTP/1.1\r\nHost: localhost\r\n"
                 b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"):  # fmt: skip
        with socket.create_connection(impatient, timeout=60) as connection:
            connection.sendall(part)
            while connection.recv(4096):  # a timeout, unless it is closed
                pass


def test_slow_client_times_out(impatient):
    with socket.create_connection(impatient, timeout=0.05) as connection:
        for _ in range(1000):
            try:
                connection.sendall(b"G")
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue  # still open
            except OSError:
                break
        else:
            pytest.fail("it was never closed")


INFO = b"GET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n"


def answer_of(connection, end):
    """What has come, up to its last bytes."""
    answer = b""
    while not answer.endswith(end):
        part = connection.recv(4096)
        assert part, "closed"
        answer += part
    return answer


def test_timeout_applies_to_every_request(impatient, monkeypatch):
    """Also to the second request of a connection."""
    monkeypatch.setattr(TimeoutProtocol, "seconds", 300)
    with socket.create_connection(impatient, timeout=60) as connection:
        connection.sendall(INFO)
        answer_of(connection, b'"problems":{}}')
        monkeypatch.setattr(TimeoutProtocol, "seconds", 0.3)
        connection.settimeout(0.05)
        for _ in range(1000):  # the head of the second, a byte at a time
            try:
                connection.sendall(b"G")
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue  # still open
            except OSError:
                break
        else:
            pytest.fail("it was never closed")


def test_late_body_after_rejection_keeps_connection(monkeypatch):
    """The connection is not closed for it later, and the next request is answered."""
    monkeypatch.setattr(TimeoutProtocol, "seconds", 300)
    head = b"POST /api/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n{"
    server = Server(create_app(Library([])), "127.0.0.1", 0)
    with (
        server.in_background(),
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection,
    ):
        connection.sendall(head)  # refused for its content type, unread
        assert answer_of(connection, b"}}").startswith(b"HTTP/1.1 415")
        (held,) = server.server_state.connections
        assert held._request_timer is not None  # the rest is awaited
        connection.sendall(b"  }")
        for _ in range(6000):
            if held._request_timer is None:
                break
            time.sleep(0.01)
        else:
            pytest.fail("it is still awaited")
        connection.sendall(INFO)
        assert answer_of(connection, b'"problems":{}}').startswith(b"HTTP/1.1 200")


def test_client_that_does_not_read_is_disconnected(monkeypatch):
    """Its connection is one of a limited number."""
    monkeypatch.setattr(TimeoutProtocol, "seconds", 300)
    monkeypatch.setattr(TimeoutProtocol, "stalled_seconds", 0.3)
    app = create_app(Library([]))
    asked = threading.Event()

    async def large():
        asked.set()
        return Response(b"x" * 2**25)

    app.add_api_route("/large", large)
    server = Server(app, "127.0.0.1", 0)
    with (
        server.in_background(),
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection,
    ):
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert asked.wait(60)  # so that no connection means that it was let go
        for _ in range(6000):
            if not server.server_state.connections:
                break
            time.sleep(0.01)
        else:
            pytest.fail("it is still connected")


def test_open_streams_do_not_delay_shutdown(tiny, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(Server, "grace", 60)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.json").write_text("{}")
    tiny.write_metrics(tmp_path / "run", 3)
    with tiny.serving(tmp_path) as server:
        connection = http.client.HTTPConnection(server.client.place, timeout=300)
        connection.request("GET", "/api/runs/run/events")
        answer = connection.getresponse()
        assert answer.readline() == b"event: metric\n"
        began = time.monotonic()
    assert time.monotonic() - began < 60  # not as long as the stream
    assert answer.read().endswith(b"\n\n")  # ended, not torn
    connection.close()
    assert "Traceback" not in capfd.readouterr().err


def test_connection_is_reused(monkeypatch):
    """Each request has its own timer; between two of them no timer runs."""
    timers = []
    expect = TimeoutProtocol._expect_request

    def noted(self):
        expect(self)
        timers.append(self._request_timer)

    monkeypatch.setattr(TimeoutProtocol, "seconds", 300)
    monkeypatch.setattr(TimeoutProtocol, "_expect_request", noted)
    server = Server(create_app(Library([])), "127.0.0.1", 0)
    with (
        server.in_background(),
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection,
    ):
        for number in range(1, 4):
            connection.sendall(INFO)
            assert answer_of(connection, b'"problems":{}}').startswith(b"HTTP/1.1 200")
            (held,) = server.server_state.connections
            assert held._request_timer is None
            assert len(timers) == number
            assert all(each.cancelled() for each in timers)


def test_log_messages_are_escaped():
    """A defect is logged with its traceback, which may quote a request or a file."""
    try:
        raise RuntimeError("\x1b[2J\x9b3J")
    except RuntimeError:
        record = logging.LogRecord("uvicorn.error", 40, "", 1, "x\r\ny", (), sys.exc_info())
    shown = EscapedFormatter("%(levelname)s: %(message)s").format(record)
    assert shown.startswith("ERROR: x\\r\ny\nTraceback")
    assert shown.endswith(r"RuntimeError: \x1b[2J\x9b3J")
    server = Server(create_app(Library([])), "127.0.0.1", 0)
    server.socket.close()
    (handler,) = logging.getLogger("uvicorn").handlers
    assert isinstance(handler.formatter, EscapedFormatter)
