"""Sentences for request bodies that pydantic refuses: the field, what it is, what is wanted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Ctx = Mapping[str, Any]

# What a field should be, by the type of pydantic's error.
WANTED_TYPES = {
    "string_type": "a string",
    "string_unicode": "a string of valid Unicode",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
WANTED: dict[str, Callable[[Ctx], str]] = {
    "finite_number": lambda ctx: "be a finite number",
    "greater_than": lambda ctx: f"be above {_number(ctx['gt'])}",
    "greater_than_equal": lambda ctx: f"be at least {_number(ctx['ge'])}",
    "less_than": lambda ctx: f"be below {_number(ctx['lt'])}",
    "less_than_equal": lambda ctx: f"be at most {_number(ctx['le'])}",
    "literal_error": lambda ctx: f"be {ctx['expected']}",
    "string_pattern_mismatch": lambda ctx: f"match {ctx['pattern']}",
}
# What is counted, how it is limited, and the limit's name in pydantic's context.
SIZES = {
    "too_long": ("value", "at most", "max_length"),
    "too_short": ("value", "at least", "min_length"),
    "string_too_long": ("character", "at most", "max_length"),
    "string_too_short": ("character", "at least", "min_length"),
}


def describe_invalid(errors: Sequence[Mapping[str, Any]], body: Any) -> tuple[str, str | None]:
    """A sentence about the first invalid field, and the path of that field.

    A field with several types has an error for each: of these the one that got furthest, that is
    a value that is wrong before a type that is wrong.
    """
    if errors[0]["type"] == "json_invalid":
        reason = errors[0].get("ctx", {}).get("error", "it ends early")
        return f"the body is not JSON ({reason}): send a JSON object", None
    paths = [_path(each["loc"], body, each["type"]) for each in errors]
    name = paths[0][0] if paths[0] else None  # the first field that is wrong
    found = [
        (path, each)
        for path, each in zip(paths, errors, strict=True)
        if (path[0] if path else None) == name
    ]
    path, error = max(found, key=lambda each: (each[1]["type"] not in WANTED_TYPES, len(each[0])))
    field = _spelled(path)
    if error["type"] in WANTED_TYPES:
        kinds = [
            WANTED_TYPES[e["type"]] for p, e in found if p == path and e["type"] in WANTED_TYPES
        ]
        wanted = " or ".join(dict.fromkeys(kinds))
        return f"{field} is {_shown(error['input'])}, but it must be {wanted}", field
    return _sentence(field, error), field


def _sentence(field: str, error: Mapping[str, Any]) -> str:
    kind, ctx = error["type"], error.get("ctx", {})
    value: Any = error.get("input")
    if kind == "missing":
        return f"{field} is missing: add it" if field != "body" else "the body is empty: send JSON"
    if kind == "extra_forbidden":
        return f"{field} is not supported here: leave it out"
    if kind == "value_error":
        return f"{field} {ctx['error']}"
    if kind in SIZES:
        noun, bound, limit = SIZES[kind]
        several = "" if len(value) == 1 else "s"
        return (
            f"{field} has {len(value):,} {noun}{several}, but it must have {bound} {ctx[limit]:,}"
        )
    if kind in WANTED:
        return f"{field} is {_shown(value)}, but it must {WANTED[kind](ctx)}"
    return f"{field}: {error['msg']}"


def _number(value: float) -> str:
    return f"{value:,}".removesuffix(".0")


def _shown(value: Any) -> str:
    """A value as JSON, shortened."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _path(location: Sequence[Any], body: Any, kind: str) -> list[str | int]:
    """Where a field is in the body, without the names that pydantic gives to types."""
    if location[0] != "body":  # a parameter of the address
        return list(location[1:])
    path: list[str | int] = []
    for part in location[1:]:
        inside = isinstance(body, dict) and part in body
        inside = inside or (isinstance(body, list) and isinstance(part, int) and part < len(body))
        if inside:
            body = body[part]
            path.append(part)
    if kind == "missing" and len(location) > 1:
        path.append(location[-1])
    return path


def _spelled(path: Sequence[str | int]) -> str:
    """A path as messages[0].content."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part[:80]}" for part in path)
    return "".join(parts).removeprefix(".") or "body"
