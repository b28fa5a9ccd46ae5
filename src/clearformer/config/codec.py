"""Configs as JSON, both ways: strict, and clear about what does not fit.

A dataclass is an object with its class name as `kind`, so a union needs no guessing. Unknown,
missing or wrong fields are refused by their path, with the nearest name.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from typing import Any, Literal

from clearformer.did_you_mean import nearest

_KINDS_OF_VALUE = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def to_json(value: Any) -> Any:
    """Plain lists and dictionaries; a dataclass carries its class name as `kind`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    return value


def from_json(annotation: Any, data: Any, path: str) -> Any:
    """Turn JSON into the annotated type, naming the field by its path where it does not fit."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(annotation), data, path)
    if origin is Literal:
        choices = typing.get_args(annotation)
        if data not in choices:
            raise ValueError(f"{path} is {data!r:.200}: {nearest(str(data), choices)}")
        return data
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{path} is {data!r:.200}, but it must be a list")
        items = typing.get_args(annotation)
        if items[-1] is Ellipsis:
            items = items[:1] * len(data)
        if len(items) != len(data):
            raise ValueError(f"{path} has {len(data)} entries, but it must have {len(items)}")
        pairs = enumerate(zip(items, data, strict=True))
        return tuple(from_json(item, entry, f"{path}[{i}]") for i, (item, entry) in pairs)
    if dataclasses.is_dataclass(annotation):
        return _decode_dataclass(annotation, data, path)
    # JSON writes 1.0 as 1 in some hands; the other way round would lose something.
    if annotation is float and isinstance(data, int) and not isinstance(data, bool):
        if abs(data) > sys.float_info.max:
            raise ValueError(f"{path} is larger than any number that a float holds")
        return float(data)
    if type(data) is not annotation:
        raise ValueError(f"{path} is {data!r:.200}, but it must be {_KINDS_OF_VALUE[annotation]}")
    if isinstance(data, str):
        try:
            data.encode()
        except UnicodeEncodeError:  # JSON can write half a surrogate pair
            raise ValueError(f"{path} is {data!r:.200}, which is no Unicode text") from None
    return data


def _decode_union(members: tuple[Any, ...], data: Any, path: str) -> Any:
    if data is None and types.NoneType in members:
        return None
    kinds: dict[str, Any] = {m.__name__: m for m in members if hasattr(m, "__dataclass_fields__")}
    if not kinds:
        plain = [m for m in members if m is not types.NoneType]
        # A number or one of a few words: what it is decides how it is read.
        return from_json(next((m for m in plain if type(data) is m), plain[-1]), data, path)
    kind = data.get("kind") if isinstance(data, dict) else None
    if str(kind) not in kinds:
        raise ValueError(f"{path} has kind {kind!r:.200}: {nearest(str(kind), kinds)}")
    return _decode_dataclass(kinds[str(kind)], data, path)


def _decode_dataclass(annotation: Any, data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{path} is {data!r:.200}, but it must be an object")
    kind = data.get("kind", annotation.__name__)
    if kind != annotation.__name__:
        raise ValueError(f"{path} has kind {kind!r:.200}, but it must be {annotation.__name__!r}")
    hints = typing.get_type_hints(annotation)
    known = [f.name for f in dataclasses.fields(annotation)]
    given = {name: value for name, value in data.items() if name != "kind"}
    for name in given:
        if name not in known:
            raise ValueError(f"{path} has an unknown field {name!r:.200}: {nearest(name, known)}")
    for f in dataclasses.fields(annotation):
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and f.name not in given:
            raise ValueError(f"{path} lacks the field {f.name!r}")
    decoded = {name: from_json(hints[name], item, f"{path}.{name}") for name, item in given.items()}
    return annotation(**decoded)


def require(owner: object, name: str, holds: bool, wanted: str) -> None:
    """Refuse a field of `owner` that is out of range."""
    if not holds:
        value = getattr(owner, name)
        raise ValueError(
            f"{type(owner).__name__}: {name} is {value!r:.200}, but it must be {wanted}"
        )
