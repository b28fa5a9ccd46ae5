"""The server: a bound port, and what happens before it closes (tests/explore has the timeouts)."""

import urllib.request

from fastapi import FastAPI

from clearformer.http_server.server import Server


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
