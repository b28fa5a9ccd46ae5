"""Strict conversion of configs to and from JSON.

A dataclass is an object with its class name as `kind`, so a union needs no guessing. Unknown,
missing or wrong fields raise ValueError with their path and the nearest name.

A field annotated with a base class (`Pattern`, `Norm`: no dataclass, or an abstract one) is open:
it takes every dataclass derived from that base that has been defined so far, so a user's own class
is read like a built-in one. Nothing is ever imported because a file names it.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

from clearformer.did_you_mean import nearest

# Names that earlier versions wrote into JSON: classes, and fields by class (its subclasses too).
FORMER_KINDS = {"Slower": "LinearScaling", "SlowerBelow": "Llama3Scaling"}
FORMER_FIELDS = {
    "ModelConfig": {"per_head": "head_width", "past": "cache"},
    "TrainConfig": {
        "lr": "learning_rate",
        "batch": "batch_size",
        "tokens": "batch_tokens",
        "accumulate": "accumulation_steps",
        "anneal": "decay_start",
        "clip": "gradient_clip",
        "smoothing": "label_smoothing",
        "ema": "ema_decay",
        "keep": "keep_checkpoints",
        "distribute": "parallel",
        "wait_seconds": "timeout_seconds",
        "tables": "embedding_std",
    },
    "Muon": {"adam_lr": "adam_learning_rate"},
    "DataConfig": {
        "validation_share": "validation_fraction",
        "text": "text_column",
        "label": "label_column",
        "cut": "truncate_to",
    },
    "Masking": {"share": "rate", "mask": "mask_replace", "random": "random_replace"},
}

_KINDS_OF_VALUE = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def to_json(value: Any) -> Any:
    """Plain lists and dictionaries; a dataclass carries its class name as `kind`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    if not isinstance(value, str | int | float | list | dict | None):
        raise ValueError(
            f"{type(value).__name__} cannot be written to a config file: make it a frozen "
            f"dataclass (@dataclass(frozen=True))"
        )
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
    if is_open(annotation):
        return _decode_kind((annotation,), data, path)
    if dataclasses.is_dataclass(annotation):
        return _decode_dataclass(annotation, data, path)
    # Some JSON writers write 1.0 as 1; reading a float as an integer could lose digits.
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
            raise ValueError(f"{path} is {data!r:.200}, which is not valid Unicode") from None
    return data


def _decode_union(members: tuple[Any, ...], data: Any, path: str) -> Any:
    if data is None and types.NoneType in members:
        return None
    kinds = tuple(m for m in members if dataclasses.is_dataclass(m) or is_open(m))
    plain = [m for m in members if m is not types.NoneType and m not in kinds]
    if plain and not (kinds and isinstance(data, dict)):
        # A number or one of a few words, decided by its type.
        return from_json(next((m for m in plain if type(data) is m), plain[-1]), data, path)
    return _decode_kind(kinds, data, path)


def _decode_kind(members: tuple[Any, ...], data: Any, path: str) -> Any:
    """The dataclass that `kind` names, among these classes and all derived from open bases."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if isinstance(kind, str) and kind in FORMER_KINDS:
        kind = FORMER_KINDS[kind]
        data = {**data, "kind": kind}
    known = classes(*members)
    found = [each for each in known if each.__name__ == kind]
    if not found:
        own = isinstance(kind, str) and any(map(is_open, members))
        advice = " (if it is your own class, import the module that defines it first)"
        names = [each.__name__ for each in known]
        hint = nearest(str(kind), names) if names else "no such class is defined"
        raise ValueError(f"{path} has kind {kind!r:.200}: {hint}{advice if own else ''}")
    if len(found) > 1:
        raise ValueError(
            f"{path} has kind {kind!r}, but there are {len(found)} classes of that name, "
            f"{' and '.join(map(_full_name, found))}: rename one of them"
        )
    return _decode_dataclass(found[0], data, path)


def classes(*members: Any) -> list[type]:
    """The dataclasses that these are or, where one is an open base, that are derived from it."""
    found: dict[str, type] = {}
    for member in members:
        for each in _derived(member) if is_open(member) else (member,):
            # A class that is defined again, as a notebook's cell does, replaces the first.
            found[_full_name(each)] = each
    return list(found.values())


def is_open(annotation: Any) -> bool:
    """Whether this is a base class that other classes are to be derived from."""
    if not isinstance(annotation, type) or annotation in (*_KINDS_OF_VALUE, types.NoneType):
        return False
    return not dataclasses.is_dataclass(annotation) or inspect.isabstract(annotation)


def _derived(base: type) -> Iterator[type]:
    """Every dataclass derived from `base` that is defined by now, but for bases in between."""
    subclasses: list[type] = base.__subclasses__()
    for each in subclasses:
        if not is_open(each) and not each.__name__.startswith("_"):
            yield each
        yield from _derived(each)


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _decode_dataclass(annotation: Any, data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{path} is {data!r:.200}, but it must be an object")
    kind = data.get("kind", annotation.__name__)
    if kind != annotation.__name__:
        raise ValueError(f"{path} has kind {kind!r:.200}, but it must be {annotation.__name__!r}")
    hints = typing.get_type_hints(annotation)
    known = [f.name for f in dataclasses.fields(annotation)]
    given = _current_names(annotation, data, path)
    for name in given:
        if name not in known:
            raise ValueError(f"{path} has an unknown field {name!r:.200}: {nearest(name, known)}")
    for f in dataclasses.fields(annotation):
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and f.name not in given:
            raise ValueError(f"{path} lacks the field {f.name!r}")
    decoded = {name: from_json(hints[name], item, f"{path}.{name}") for name, item in given.items()}
    return annotation(**decoded)


def _current_names(kind: type, data: dict[str, Any], path: str) -> dict[str, Any]:
    """The fields of a JSON object under their current names; the same field twice is refused."""
    former: dict[str, str] = {}
    for each in kind.__mro__:
        former |= FORMER_FIELDS.get(each.__name__, {})
    given: dict[str, Any] = {}
    for name, value in data.items():
        current = former.get(str(name), str(name))
        if current in given:
            raise ValueError(f"{path} has the field {current!r} twice, also under its former name")
        if name != "kind":
            given[current] = value
    return given
