"""Access control: only the server's own pages may send requests.

Every web page that is open in a browser can send requests to 127.0.0.1. A foreign name in `Host`
comes from a site whose name was made to resolve to this machine (DNS rebinding); a foreign
`Origin` comes from another site's script. Both are refused before anything else reads the request.
The order is Host, Origin and content type, token, size.
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

from clearformer.explore.errors import Problem, too_big
from clearformer.explore.limits import MAX_BODY_BYTES, MIN_ACCESS_TOKEN

LOOPBACK = ("127.0.0.1", "localhost")
LOCAL = (*LOOPBACK, "::1")  # not reachable from other machines
CSP = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'"
SAFE_METHODS = ("GET", "HEAD")
FOREIGN = Problem(403, "foreign_origin", "another site sent this request")
BODY_TOO_BIG = too_big(
    f"the request has more than {MAX_BODY_BYTES:,} bytes", MAX_BODY_BYTES, hint=None
)


def allowed_hosts(host: str) -> tuple[str, ...]:
    """The names under which pages may reach a server that listens on `host`."""
    if host in LOOPBACK:
        return LOOPBACK
    if host in ("0.0.0.0", "::"):
        name = socket.gethostname()
        try:
            addresses = tuple({str(each[4][0]) for each in socket.getaddrinfo(name, None)})
        except OSError:
            addresses = ()
        return (*LOOPBACK, name.lower(), *map(bracketed, ("::1", *addresses)))
    return (*LOOPBACK, bracketed(host.lower()))


def bracketed(host: str) -> str:
    """A host as written in a URL and in `Host`: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def require_token(host: str, token: str | None) -> None:
    """Refuse to serve other machines without an access token."""
    if token is None and host not in LOCAL:
        raise ValueError(
            f"host is {host}, which other machines can reach: add --token with at least "
            f"{MIN_ACCESS_TOKEN} characters, or leave --host out"
        )
    if token is not None and (len(token) < MIN_ACCESS_TOKEN or not token.isascii()):
        raise ValueError(
            f"the token has {len(token)} characters, but it must have at least {MIN_ACCESS_TOKEN} "
            f"of ASCII: such as {secrets.token_urlsafe(16)}"
        )


class AccessMiddleware:
    """Checks origin, content type, token and body size, and sets headers on every response.

    Starlette's own middleware has checked `Host` before.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app = app
        self.token = token
        self.digest = hashlib.sha256((token or "").encode()).hexdigest()  # the cookie's value
        # A name for each token, so that two servers on one machine do not share a cookie.
        self.cookie = f"clearformer-{self.digest[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # web sockets are not served
        send = _with_headers(send)
        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self.app(scope, _LimitedBody(receive), send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        origin = headers.get("origin")
        if origin is not None and origin != f"{scope['scheme']}://{headers.get('host')}":
            return error_response(FOREIGN)
        # For a request without Origin, such as that of an <img>, the browser names the site. Only
        # the page itself may be linked from other sites.
        site = headers.get("sec-fetch-site", "none")
        if site not in ("none", "same-origin") and scope["path"] != "/":
            return error_response(FOREIGN)
        if scope["method"] not in SAFE_METHODS:
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return error_response(
                    Problem(403, "content_type", "a POST must be application/json")
                )
        if self.token is not None and not self._has_cookie(headers):
            token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            if scope["path"] == "/" and _equal(token, self.token):
                return self._set_cookie()
            hint = "open the address that was printed when it started"
            return error_response(Problem(401, "no_token", "this server needs a token", hint=hint))
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > MAX_BODY_BYTES:
            return error_response(BODY_TOO_BIG)
        return None

    def _set_cookie(self) -> Response:
        """Move the token from the address into a cookie."""
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(self.cookie, self.digest, httponly=True, samesite="strict", path="/")
        return response

    def _has_cookie(self, headers: Headers) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return cookie is not None and _equal(cookie.value, self.digest)


def _equal(value: str, secret: str) -> bool:
    return secrets.compare_digest(value.encode("utf-8", "replace"), secret.encode())


class _LimitedBody:
    """The `receive` of a request, with a limit on the size of the body."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.size = 0

    async def __call__(self) -> Message:
        message = await self.receive()
        self.size += len(message.get("body", b""))
        if self.size > MAX_BODY_BYTES:
            # FastAPI passes on only an HTTPException while it reads a body.
            raise HTTPException(413, BODY_TOO_BIG.body["error"])
        return message


def error_response(problem: Problem) -> Response:
    # ASCII, because a message may quote half a surrogate pair, which UTF-8 cannot encode.
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
