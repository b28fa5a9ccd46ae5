"""Error responses: a status, a code, a message and a hint."""

from __future__ import annotations

from typing import Any


class Problem(Exception):  # noqa: N818
    """A request that cannot be answered, with the status and body of the response."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        limit: int | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        optional = {"hint": hint, "limit": limit, "field": field}
        details = {name: value for name, value in optional.items() if value is not None}
        self.body: dict[str, Any] = {"error": {"code": code, "message": message, **details}}


def unknown(kind: str, name: str) -> Problem:
    return Problem(404, f"unknown_{kind}", f"there is no {kind} {name[:80]!r}")


def wrong_kind(message: str, hint: str | None = None) -> Problem:
    return Problem(409, "wrong_kind", message, hint=hint)


def bad_field(field: str, message: str, code: str = "invalid") -> Problem:
    return Problem(422, code, message, field=field)


def require_index(name: str, value: int, count: int) -> None:
    if not 0 <= value < count:
        raise bad_field(name, f"{name} is {value}, but it must be from 0 to {count - 1}")


def too_long(count: int, limit: int, unit: str = "tokens", raise_to: int | None = None) -> Problem:
    option = f" or start with --max-tokens {raise_to}" if raise_to else ""
    hint = f"shorten the text{option}"
    return Problem(413, "too_long", f"{count:,} {unit}, limit {limit:,}", hint=hint, limit=limit)


def too_big(message: str, limit: int, hint: str | None = "shorten the text") -> Problem:
    return Problem(413, "too_big", message, hint=hint, limit=limit)


def busy(message: str, limit: int) -> Problem:
    return Problem(429, "busy", message, hint="try again in a moment", limit=limit)


def too_slow(what: str, seconds: float, hint: str) -> Problem:
    return Problem(503, "too_slow", f"{what} in {seconds:.0f} s", hint=hint)
