"""Who may ask: our own pages alone, in this order: Host, then Origin and content type, then token.

127.0.0.1 is no boundary: every web page that is open in a browser can send requests to it. A
foreign name in `Host` is another site that made its name point here; a foreign `Origin` is
another site's script. Both are refused before anything else looks at the request.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearformer.explore.errors import Problem
from clearformer.explore.limits import LARGEST_BODY, SHORTEST_TOKEN

LOOPBACK = ("127.0.0.1", "localhost")
LOCAL = (*LOOPBACK, "::1")  # addresses that only this machine reaches
CSP = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'"
SAFE = ("GET", "HEAD")


def allowed_hosts(host: str) -> tuple[str, ...]:
    """The names under which pages may reach a server that listens on `host`."""
    if host in LOOPBACK:
        return LOOPBACK
    if host in ("0.0.0.0", "::"):
        own = socket.gethostname()
        try:
            addresses = tuple({str(each[4][0]) for each in socket.getaddrinfo(own, None)})
        except OSError:
            addresses = ()
        return (*LOOPBACK, own.lower(), *map(bracketed, ("::1", *addresses)))
    return (*LOOPBACK, bracketed(host.lower()))


def bracketed(host: str) -> str:
    """A host as it stands in an address and in `Host`: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def require_token(host: str, token: str | None) -> None:
    """Whoever lets others in must say who; refuses to start otherwise."""
    if token is None and host not in LOCAL:
        raise ValueError(
            f"host is {host}, which others can reach: add --token with at least "
            f"{SHORTEST_TOKEN} characters, or leave --host out"
        )
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii()):
        raise ValueError(
            f"the token has {len(token)} characters, but it must have at least {SHORTEST_TOKEN} "
            f"plain ones: such as {secrets.token_urlsafe(16)}"
        )


class Gate:
    """Origin and content type, token, size of the body; and headers on every answer.

    The name in `Host` is checked before, by Starlette's own middleware.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app = app
        self.token = token
        self.cookie = None
        if token is not None:
            # A name of its own, so that two servers on one machine do not overwrite each other's.
            self.cookie = f"clearformer-{hashlib.sha256(token.encode()).hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there are no web sockets here
        send = _with_headers(send)
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self.app(scope, _Limited(receive), send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        origin = headers.get("origin")
        if origin is not None and origin != f"{scope['scheme']}://{headers.get('host')}":
            return answer(Problem(403, "foreign_origin", "another site sent this request"))
        # A request without Origin, as of an <img>: the browser says whose page it is on. A link to
        # the page itself may stand anywhere.
        site = headers.get("sec-fetch-site", "none")
        if site not in ("none", "same-origin") and scope["path"] != "/":
            return answer(Problem(403, "foreign_origin", "another site sent this request"))
        if scope["method"] not in SAFE:
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return answer(Problem(403, "content_type", "a POST must be application/json"))
        if self.token is not None and not self._knows(headers):
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            if scope["path"] == "/" and self._same(given):
                return self._welcome()
            return answer(
                Problem(
                    401,
                    "no_token",
                    "this server wants its token",
                    hint="open the address that was printed when it started",
                )
            )
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > LARGEST_BODY:
            return answer(too_large())
        return None

    def _welcome(self) -> Response:
        """The token has come once in the address; from now on it travels as a cookie."""
        assert self.cookie is not None
        assert self.token is not None
        response = RedirectResponse("/", status_code=303)
        digest = hashlib.sha256(self.token.encode()).hexdigest()
        response.set_cookie(self.cookie, digest, httponly=True, samesite="strict", path="/")
        return response

    def _knows(self, headers: Headers) -> bool:
        assert self.cookie is not None
        assert self.token is not None
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        digest = hashlib.sha256(self.token.encode()).hexdigest()
        return found is not None and secrets.compare_digest(
            found.value.encode("utf-8", "replace"), digest.encode()
        )

    def _same(self, given: str) -> bool:
        assert self.token is not None
        return secrets.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


class _Limited:
    """The body of a request, as long as it is not too long."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.seen = 0

    async def __call__(self) -> Message:
        message = await self.receive()
        self.seen += len(message.get("body", b""))
        if self.seen > LARGEST_BODY:
            # FastAPI lets only its own kind of problem through while it reads a body.
            raise HTTPException(413, too_large().body["error"])
        return message


def too_large() -> Problem:
    return Problem(
        413, "too_big", f"the request has more than {LARGEST_BODY:,} bytes", limit=LARGEST_BODY
    )


def answer(problem: Problem) -> Response:
    # In ASCII: a sentence may quote half a character, which no UTF-8 can carry.
    text = json.dumps(problem.body)
    return Response(text, status_code=problem.status, media_type="application/json")


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("content-security-policy", CSP)
            headers["x-content-type-options"] = "nosniff"
            headers["x-frame-options"] = "DENY"
            headers["referrer-policy"] = "no-referrer"
            headers["cross-origin-resource-policy"] = "same-origin"
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return sending
