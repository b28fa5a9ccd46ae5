"""The explorer's access token: given once in the address, then kept in a cookie."""

from __future__ import annotations

import hashlib
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from clearformer.http_server.errors import Problem
from clearformer.http_server.gate import LOCAL, equal_secrets, error_response
from clearformer.http_server.limits import MIN_SECRET


def require_token(host: str, token: str | None) -> None:
    """Refuse to serve other machines without an access token."""
    if token is None and host not in LOCAL:
        raise ValueError(
            f"host is {host}, which other machines can reach: add --token with at least "
            f"{MIN_SECRET} characters, or leave --host out"
        )
    if token is not None and (len(token) < MIN_SECRET or not token.isascii()):
        raise ValueError(
            f"the token has {len(token)} characters, but it must have at least {MIN_SECRET} "
            f"of ASCII: such as {secrets.token_urlsafe(16)}"
        )


class TokenCookie:
    """Lets requests pass that have the cookie, and exchanges the token of an address for it."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.digest = hashlib.sha256(token.encode()).hexdigest()  # the cookie's value
        # A name for each token, so that two servers on one machine do not share a cookie.
        self.cookie = f"clearformer-{self.digest[:8]}"

    def __call__(self, scope: Scope, headers: Headers) -> Response | None:
        if self._has_cookie(headers):
            return None
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and equal_secrets(token, self.token):
            return self._set_cookie()
        hint = "open the address that was printed when it started"
        return error_response(Problem(401, "no_token", "this server needs a token", hint=hint))

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
        return cookie is not None and equal_secrets(cookie.value, self.digest)
