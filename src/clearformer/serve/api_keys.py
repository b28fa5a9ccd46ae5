"""API keys: which requests may use the server."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from clearformer import safe_files
from clearformer.http_server.errors import Problem
from clearformer.http_server.gate import LOCAL
from clearformer.http_server.limits import MIN_SECRET
from clearformer.serve.errors import api_error

OPEN_PATHS = ("/health",)  # for whoever watches the server
MAX_FILE = 2**20


class ApiKeys:
    """Lets requests pass that bring one of the keys: `Authorization: Bearer KEY`."""

    def __init__(self, keys: Sequence[str]) -> None:
        for number, key in enumerate(keys, 1):
            if len(key) < MIN_SECRET or not key.isascii() or key != key.strip():
                raise ValueError(
                    f"API key {number} has {len(key)} characters, but it must have at least "
                    f"{MIN_SECRET} ASCII characters and no spaces around them, such as "
                    f"{secrets.token_urlsafe(24)}"
                )
        # Hashes have one length, so that comparing them tells nothing about a key, not its length.
        self.digests = [_digest(key) for key in keys]

    def __call__(self, scope: Scope, headers: Headers) -> Response | None:
        if not self.digests or scope["path"] in OPEN_PATHS:
            return None
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = _digest(key.strip())
        # All keys are compared, whichever fits.
        known = sum([secrets.compare_digest(given, digest) for digest in self.digests])
        if known and scheme.lower() == "bearer":
            return None
        message = "the API key is wrong" if key else "this server needs an API key"
        hint = "send the header Authorization: Bearer KEY"
        return api_error(Problem(401, "invalid_api_key", message, hint=hint))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


def read_keys(path: Path) -> list[str]:
    """The keys in a file, one on each line."""
    text = safe_files.read(path, MAX_FILE, "MAX_FILE").decode("utf-8", "replace")
    keys = [line.strip() for line in text.splitlines() if line.strip()]
    if not keys:
        raise ValueError(f"{path} has no API key: write one on each line")
    return keys


def require_keys(host: str, keys: Sequence[str]) -> None:
    """Refuse to serve other machines without a key."""
    if not keys and host not in LOCAL:
        raise ValueError(
            f"host is {host}, which other machines can reach: add --api-keys with a file of keys, "
            f"or leave --host out"
        )
