"""G10 with a test application: requests that pass, and requests that are rejected."""

import pytest

from clearformer.selftest import explorer
from clearformer.selftest.processes import Missed


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

    app.openapi = lambda: {"paths": {"/api/info": {"get": {}}, "/api/{id}": {"post": {}}}}
    return app


@pytest.mark.parametrize("checks", [True, False])
def test_g10_checks_every_route(tmp_path, checks):
    if checks:
        asked = explorer.routes(tmp_path, lambda place: application(checks))
        assert asked == "5 routes, 26 foreign requests, all refused"
    else:
        with pytest.raises(Missed, match=r"POST /api/{id} from a foreign page: 200 and not 403"):
            explorer.routes(tmp_path, lambda place: application(checks))


def test_g10_explorer_rejects_foreign_requests(tmp_path):
    said = explorer.routes(tmp_path)
    assert said.endswith("foreign requests, all refused")
    assert int(said.split()[0]) > 20
