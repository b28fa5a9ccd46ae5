"""What can go wrong in an answer, in one shape: a code, a sentence, and what to do."""

from __future__ import annotations

from typing import Any


class Problem(Exception):  # noqa: N818
    """An answer that is no answer: its status and its body. Not an error of ours."""

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
        more = {"hint": hint, "limit": limit, "field": field}
        given = {name: value for name, value in more.items() if value is not None}
        self.body: dict[str, Any] = {"error": {"code": code, "message": message, **given}}


def unknown(what: str, name: str) -> Problem:
    return Problem(404, f"unknown_{what}", f"there is no {what} {name[:80]!r}")


def wrong_kind(message: str, hint: str | None = None) -> Problem:
    return Problem(409, "wrong_kind", message, hint=hint)


def bad_field(field: str, message: str, code: str = "invalid") -> Problem:
    return Problem(422, code, message, field=field)


def too_long(count: int, limit: int, what: str = "tokens", hard: int | None = None) -> Problem:
    hint = f"shorten the text or start with --max-tokens {hard}" if hard else "shorten the text"
    message = f"{count:,} {what}, limit {limit:,}"
    return Problem(413, "too_long", message, hint=hint, limit=limit)
