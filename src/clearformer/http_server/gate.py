"""Access control of local servers: other sites' pages may not send requests.

Every web page that is open in a browser can send requests to 127.0.0.1. A foreign name in `Host`
comes from a site whose name was made to resolve to this machine (DNS rebinding); a foreign
`Origin` comes from another site's script. Both are refused before anything else reads the request.
The order is Host, Origin and content type, authorization, size.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearformer.http_server.errors import Problem, too_big
from clearformer.http_server.limits import MAX_BODY_BYTES

LOOPBACK = ("127.0.0.1", "localhost")
LOCAL = (*LOOPBACK, "::1")  # not reachable from other machines
CSP = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'"
SAFE_METHODS = ("GET", "HEAD")
FOREIGN = Problem(403, "foreign_origin", "a page of another site sent this request: it is refused")
# A refusal of a request by its headers, or None.
Authorize = Callable[[Scope, Headers], Response | None]


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


def authorize_all(scope: Scope, headers: Headers) -> Response | None:
    """The authorization of a server that needs none."""
    return None


class HostMiddleware:
    """Starlette's check of `Host`, with a refusal that `respond` writes instead of plain text."""

    def __init__(
        self, app: ASGIApp, allowed_hosts: Sequence[str], respond: Callable[[Problem], Response]
    ) -> None:
        self.app, self.respond = app, respond
        self.allowed_hosts = list(allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = False

        async def accept(*_: object) -> None:
            nonlocal known
            known = True

        async def discard(message: Message) -> None:
            pass

        check = TrustedHostMiddleware(accept, self.allowed_hosts, www_redirect=False)
        await check(scope, receive, discard)
        await (self.app if known else self.respond(foreign_host()))(scope, receive, send)


def foreign_host() -> Problem:
    return Problem(
        400,
        "foreign_host",
        "the request names another host than this server",
        hint="use the address that the server printed",
    )


class AccessMiddleware:
    """Checks origin, content type, authorization and body size, and sets headers on responses.

    `HostMiddleware` has checked `Host` before. `respond` writes a refusal; pages of
    other sites may link to `linked` only. `not_json` is the status of another content type.
    """

    def __init__(
        self,
        app: ASGIApp,
        authorize: Authorize = authorize_all,
        respond: Callable[[Problem], Response] | None = None,
        max_body: int = MAX_BODY_BYTES,
        linked: tuple[str, ...] = ("/",),
        not_json: int = 415,
    ) -> None:
        self.app = app
        self.authorize = authorize
        self.respond = respond or error_response
        self.max_body = max_body
        self.linked = linked
        self.not_json = not_json

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
            await self.app(scope, _LimitedBody(receive, self.max_body), send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        origin = headers.get("origin")
        if origin is not None and origin != f"{scope['scheme']}://{headers.get('host')}":
            return self.respond(FOREIGN)
        # For a request without Origin, such as that of an <img>, the browser names the site. Only
        # the page itself may be linked from other sites.
        site = headers.get("sec-fetch-site", "none")
        if site not in ("none", "same-origin") and scope["path"] not in self.linked:
            return self.respond(FOREIGN)
        if scope["method"] not in SAFE_METHODS:
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return self.respond(wrong_content_type(scope["method"], self.not_json))
        refusal = self.authorize(scope, headers)
        if refusal is not None:
            return refusal
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self.max_body:
            return self.respond(body_too_big(self.max_body))
        return None


def wrong_content_type(method: str, status: int) -> Problem:
    message = f"a {method} must have the header Content-Type: application/json"
    return Problem(status, "content_type", message)


def body_too_big(limit: int) -> Problem:
    return too_big(f"the request has more than {limit:,} bytes", limit, hint=None)


def equal_secrets(value: str, secret: str) -> bool:
    """Whether two texts are equal, in a time that does not depend on where they differ."""
    return secrets.compare_digest(value.encode("utf-8", "replace"), secret.encode())


class _LimitedBody:
    """The `receive` of a request, with a limit on the size of the body."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self.receive = receive
        self.limit = limit
        self.size = 0

    async def __call__(self) -> Message:
        message = await self.receive()
        self.size += len(message.get("body", b""))
        if self.size > self.limit:
            # FastAPI passes on only an HTTPException while it reads a body.
            raise HTTPException(413, body_too_big(self.limit).body["error"])
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
