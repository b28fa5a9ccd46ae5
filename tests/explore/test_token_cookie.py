"""Access control on every route: Host, Origin, content type and token."""

import http.client
import json
import socket
import threading

import pytest

from clearformer.explore.app import ROUTERS
from clearformer.explore.token_cookie import require_token
from clearformer.http_server.gate import CSP, allowed_hosts

TOKEN = "a-token-that-is-long-enough"


def every_route(app):
    """Method and path of every route, found by asking the application itself."""
    found = [
        ("GET", "/"),
        ("GET", "/static/explorer.js"),
        ("GET", "/nowhere"),
        ("POST", "/nowhere"),
    ]
    for path, methods in app.openapi()["paths"].items():
        found += [(method.upper(), path.replace("{id}", "gpt2")) for method in methods]
    assert len(found) > 25
    return found


@pytest.fixture(scope="module")
def guarded(tiny, tiny_runs):
    with tiny.serving(tiny_runs, token=TOKEN) as server:
        yield server


def body(method):
    return b"{}" if method == "POST" else None


def test_every_route_rejects_foreign_host_first(guarded):
    for method, path in every_route(guarded.app):
        for host in ("evil.test", "[::1]", "10.1.2.3", "127.0.0.1.evil.test", "localhost.", ""):
            headers = {"Host": host, "Origin": "http://evil.test"}
            answer = guarded.client.ask(method, path, headers=headers, raw=body(method))
            assert answer.status == 400, (method, path, host)


def test_every_route_rejects_foreign_origin_before_token(guarded):
    own = guarded.url
    for method, path in every_route(guarded.app):
        for origin in (
            "http://evil.test",
            "null",
            f"{own}.evil.test",
            own.replace("http", "https"),
        ):
            headers = {"Origin": origin}
            answer = guarded.client.ask(method, path, headers=headers, raw=body(method))
            assert answer.status == 403, (method, path, origin)
            assert "access-control-allow-origin" not in {name.lower() for name in answer.headers}


def test_every_route_except_page_rejects_cross_site_requests(guarded):
    """An <img> or a <script> of another site sends no Origin."""
    for method, path in every_route(guarded.app):
        for site in ("cross-site", "same-site", "x"):
            headers = {"Sec-Fetch-Site": site}
            answer = guarded.client.ask(method, path, headers=headers, raw=body(method))
            assert answer.status == (401 if path == "/" else 403), (method, path, site)
    for site in ("same-origin", "none"):
        answer = guarded.client.ask("GET", "/api/info", headers={"Sec-Fetch-Site": site})
        assert answer.status == 401  # asked for the token, as any other


def test_every_route_requires_token(guarded):
    for method, path in every_route(guarded.app):
        for cookie in ("", "clearformer-00000000=x", 'clearformer="', "a=b; " * 20):
            answer = guarded.client.ask(method, path, headers={"Cookie": cookie}, raw=body(method))
            assert answer.status == 401, (method, path)
            assert json.loads(answer.body)["error"]["code"] == "no_token"


def test_post_requires_json(client):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = client.ask("POST", "/api/traces", headers={"Content-Type": kind}, raw=b"{}")
        assert answer.status == 415


def test_token_in_address_is_exchanged_for_cookie(guarded):
    ask = guarded.client.ask
    assert ask("GET", "/?token=wrong").status == 401
    assert ask("GET", f"/api/info?token={TOKEN}").status == 401
    welcome = ask("GET", f"/?token={TOKEN}")
    assert (welcome.status, welcome.headers["location"]) == (303, "/")
    cookie = welcome.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    headers = {"Cookie": cookie.partition(";")[0]}
    assert ask("GET", "/api/info", headers=headers).status == 200
    own = {**headers, "Origin": guarded.url}
    posted = ask("POST", "/api/traces", {"model": "gpt2", "text": "a"}, headers=own)
    assert posted.status == 200


def test_every_response_has_security_headers(client):
    for path in ("/", "/api/info", "/nowhere", "/static/explorer.js"):
        headers = {name.lower(): value for name, value in client.ask("GET", path).headers.items()}
        assert headers["content-security-policy"] == CSP
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert not any(name.startswith("access-control") for name in headers)


def test_path_traversal_is_not_found(client):
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/api/models/..%2f..%2fetc%2fpasswd/parameters",
        "/api/runs/../../etc/passwd/metrics",
        "/api/runs/%2e%2e/metrics",
        "/api/source?symbol=../../etc/passwd",
    ):
        assert client.ask("GET", path).status == 404, path


def test_rejects_oversized_body(client):
    large = b'{"model": "' + b"x" * 2**20 + b'"}'
    assert client.ask("POST", "/api/traces", raw=large).status == 413
    # Without a length, in chunks: counted as they come.
    connection = http.client.HTTPConnection(client.place, timeout=120)
    chunks = (b"x" * 2**16 for _ in range(40))
    connection.request("POST", "/api/traces", chunks, {"Content-Type": "application/json"},
                       encode_chunked=True)  # fmt: skip
    answer = connection.getresponse()
    assert answer.status == 413
    assert json.loads(answer.read())["error"]["code"] == "too_big"
    connection.close()


def test_public_host_requires_token():
    require_token("127.0.0.1", None)
    require_token("::1", None)
    require_token("0.0.0.0", TOKEN)
    with pytest.raises(
        ValueError, match=r"host is 0\.0\.0\.0, which other machines can reach: add --token"
    ):
        require_token("0.0.0.0", None)
    with pytest.raises(
        ValueError, match="the token has 5 characters, but it must have at least 16"
    ):
        require_token("127.0.0.1", "short")


def test_allowed_hosts_has_no_wildcard():
    assert allowed_hosts("127.0.0.1") == ("127.0.0.1", "localhost")
    assert socket.gethostname().lower() in allowed_hosts("0.0.0.0")
    assert "*" not in "".join(allowed_hosts("0.0.0.0"))
    assert "192.168.1.5" in allowed_hosts("192.168.1.5")
    assert allowed_hosts("::1") == ("127.0.0.1", "localhost", "[::1]")
    assert "[::1]" in allowed_hosts("::")


def test_many_clients_are_answered_or_rejected(explorer_server):
    client, statuses, slow = explorer_server.client, [], []
    host, port = client.place.split(":")
    for _ in range(10):  # half a request each, and then nothing
        waiting = socket.create_connection((host, int(port)), timeout=120)
        waiting.sendall(b"POST /api/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")
        slow.append(waiting)

    def ask(number):
        if number % 4 == 0:
            statuses.append(client.ask("GET", "/api/info").status)
        else:
            asked = {"model": "twelve", "text": "the cat sat on the mat " * 2}
            statuses.append(client.ask("POST", "/api/traces", asked).status)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    for waiting in slow:
        waiting.close()
    assert len(statuses) == 40
    assert set(statuses) <= {200, 429}
    assert statuses.count(200) >= 10 + 8
    assert client.get("/api/info")["generating"] == 0


HOSTILE = {
    "deep": b"[" * 400_000 + b"]" * 400_000,
    "deep object": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "long number": b'{"model":"gpt2","text":"a","seed":' + b"9" * 5_000 + b"}",
    "nan": b'{"model":"gpt2","text":"a","prompt":"a","seed":NaN,"temperature":NaN}',
    "infinity": b'{"model":"gpt2","prompt":"a","temperature":1e400,"top_p":-Infinity}',
    "negative": b'{"model":"gpt2","text":"a b","edit":{"i":-9,"text":"x"},"permutation":[-1]}',
    "null": b"null",
    "empty": b"",
    "not utf-8": b'{"model":"\xff\xfe"}',
    "utf-16": '{"model":"gpt2"}'.encode("utf-16"),
    "half a character": b'{"model":"gpt2","text":"\\ud800","prompt":"\\udfff"}',
    "nul": b'{"model":"gpt2\\u0000","text":"a\\u0000b"}',
    "long name": b'{"' + b"k" * 900_000 + b'":1}',
    "many": b'{"model":"gpt2","text":"a","permutation":[' + b"0," * 16_000 + b"0]}",
    "blank": b'{"model":"gpt2","text":"' + b" " * 150_000 + b'"}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_rejects_hostile_body(client, explorer_server, name):
    for method, path in every_route(explorer_server.app):
        if method == "POST":
            answer = client.ask("POST", path, raw=HOSTILE[name])
            assert 400 <= answer.status < 500, (path, answer.status)
            assert len(answer.body) < 1000, path
            assert json.loads(answer.body)["error"]["message"], path
    assert client.get("/api/info")["generating"] == 0


@pytest.mark.parametrize(
    "start",
    [
        b"HEAD /api/info HTTP/1.1", b"OPTIONS * HTTP/1.1", b"TRACE /api/info HTTP/1.1",
        b"PUT /api/info HTTP/1.1", b"CONNECT 127.0.0.1:80 HTTP/1.1", b"BREW /api/info HTTP/1.1",
        b"GET http://evil.test/api/info HTTP/1.1", b"GET //api/info HTTP/1.1",
        b"GET /api/info/ HTTP/1.1", b"GET /API/info HTTP/1.1", b"GET /api/info%00 HTTP/1.1",
        b"GET /api/runs/%2e%2e/metrics HTTP/1.1", b"PRI * HTTP/2.0", b"GET  HTTP/1.1", b"\x16\x03",
        b"GET /api/info HTTP/1.1\r\nX: " + b"a" * 200_000,
        b"GET /api/info HTTP/1.1\r\nHost: localhost",  # twice
        b"POST /api/probe HTTP/1.1\r\nContent-Length: " + b"9" * 5_000,
        b"POST /api/probe HTTP/1.1\r\nContent-Length: -1",
        b"POST /api/probe HTTP/1.1\r\nTransfer-Encoding: chunked, chunked",
    ],
)  # fmt: skip
def test_malformed_request_does_not_affect_next(client, start):
    host, port = client.place.split(":")
    with socket.create_connection((host, int(port)), timeout=300) as connection:
        connection.sendall(start + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
        except ConnectionResetError:
            pass  # closed before it was all sent
    status = answer.split(b" ")[1:2]
    assert status in ([], [b"307"]) or 400 <= int(status[0]) < 500, answer[:200]
    assert client.ask("GET", "/api/info").status == 200


def test_web_sockets_are_not_supported(client):
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    answer = client.ask("GET", "/api/runs", headers=headers)
    assert answer.status == 200  # a plain answer, and no switch of protocols
    assert "upgrade" not in {name.lower() for name in answer.headers}


def test_every_route_is_in_schema(explorer_server):
    """A route that is not in the schema would have escaped the tests above."""
    known = set(explorer_server.app.openapi()["paths"])
    assert {route.path for router in ROUTERS for route in router.routes} == known
