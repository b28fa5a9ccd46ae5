"""Our own pages alone: Host, then Origin and content type, then token, on every route."""

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


def test_every_route_refuses_a_foreign_host_first(guarded):
    for method, path in every_route(guarded.app):
        for host in ("evil.test", "[::1]", "10.1.2.3", "127.0.0.1.evil.test", "localhost.", ""):
            headers = {"Host": host, "Origin": "http://evil.test"}
            answer = guarded.client.ask(method, path, headers=headers, raw=body(method))
            assert answer.status == 400, (method, path, host)


def test_every_route_refuses_a_foreign_origin_before_it_asks_for_the_token(guarded):
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


def test_every_route_but_the_page_refuses_what_stands_on_another_site(guarded):
    """An <img> or a <script> of another site sends no Origin."""
    for method, path in every_route(guarded.app):
        for site in ("cross-site", "same-site", "x"):
            headers = {"Sec-Fetch-Site": site}
            answer = guarded.client.ask(method, path, headers=headers, raw=body(method))
            assert answer.status == (401 if path == "/" else 403), (method, path, site)
    for site in ("same-origin", "none"):
        answer = guarded.client.ask("GET", "/api/info", headers={"Sec-Fetch-Site": site})
        assert answer.status == 401  # asked for the token, as any other


def test_every_route_wants_the_token(guarded):
    for method, path in every_route(guarded.app):
        for cookie in ("", "clearformer-00000000=x", 'clearformer="', "a=b; " * 20):
            answer = guarded.client.ask(method, path, headers={"Cookie": cookie}, raw=body(method))
            assert answer.status == 401, (method, path)
            assert json.loads(answer.body)["error"]["code"] == "no_token"


def test_a_post_must_be_json(client):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = client.ask("POST", "/api/traces", headers={"Content-Type": kind}, raw=b"{}")
        assert answer.status == 403


def test_the_token_travels_once_in_the_address_and_then_as_a_cookie(guarded):
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


def test_every_answer_carries_its_policy(client):
    for path in ("/", "/api/info", "/nowhere", "/static/explorer.js"):
        headers = {name.lower(): value for name, value in client.ask("GET", path).headers.items()}
        assert headers["content-security-policy"] == CSP
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert not any(name.startswith("access-control") for name in headers)


def test_paths_that_climb_are_not_found(client):
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


def test_a_body_that_is_too_large_is_refused(client):
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


def test_who_lets_others_in_must_say_who():
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


def test_names_are_never_a_star():
    assert allowed_hosts("127.0.0.1") == ("127.0.0.1", "localhost")
    assert socket.gethostname().lower() in allowed_hosts("0.0.0.0")
    assert "*" not in "".join(allowed_hosts("0.0.0.0"))
    assert "192.168.1.5" in allowed_hosts("192.168.1.5")
    assert allowed_hosts("::1") == ("127.0.0.1", "localhost", "[::1]")
    assert "[::1]" in allowed_hosts("::")


def test_many_clients_at_once_are_answered_or_told_to_wait(explorer_server):
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
def test_a_hostile_body_is_refused_in_one_sentence(client, explorer_server, name):
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
def test_an_odd_request_is_refused_and_the_next_is_answered(client, start):
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


def test_there_are_no_web_sockets(client):
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    answer = client.ask("GET", "/api/runs", headers=headers)
    assert answer.status == 200  # a plain answer, and no switch of protocols
    assert "upgrade" not in {name.lower() for name in answer.headers}


def test_routes_are_all_behind_the_gate(explorer_server):
    """A route that is not in the schema would have escaped the tests above."""
    known = set(explorer_server.app.openapi()["paths"])
    assert {route.path for router in ROUTERS for route in router.routes} == known
