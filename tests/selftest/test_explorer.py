"""G10, with an application of our own: what it lets pass, and what it does not."""

import sys
from types import SimpleNamespace

import pytest

from clearformer.selftest import explorer
from clearformer.selftest.nursery import Missed


def application(checks_origin):
    async def app(scope, receive, send):
        headers = dict(scope["headers"])
        status = 200
        if headers[b"host"] != b"127.0.0.1":
            status = 400
        elif checks_origin and b"origin" in headers:
            status = 403
        await receive()
        await send({"type": "http.response.start", "status": status})

    app.routes = [
        SimpleNamespace(path="/", methods={"GET", "HEAD"}),
        SimpleNamespace(path="/api/{id}", methods={"POST"}),
    ]
    return app


@pytest.mark.parametrize("checks", [True, False])
def test_g10_every_route_is_asked(tmp_path, monkeypatch, checks):
    server = SimpleNamespace(app=lambda folders: application(checks))
    monkeypatch.setitem(sys.modules, "clearformer.explore.server", server)
    if checks:
        assert explorer.routes(tmp_path) == "2 routes, 11 foreign requests, none let in"
    else:
        with pytest.raises(Missed, match=r"POST /api/{id} from a foreign page: 200 and not 403"):
            explorer.routes(tmp_path)
