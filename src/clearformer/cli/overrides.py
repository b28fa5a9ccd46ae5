"""Flags that override settings: by the end of a path, or with a value of another class.

`--minutes` is `--train.minutes` and `--dropout.embedding` is `--model.dropout.embedding`, where
only one setting ends like that. `--optimizer muon` selects another class for a setting that
has several; the settings of that class are then flags like any other.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from itertools import pairwise, zip_longest
from typing import Any, Literal

from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
)

from clearformer.config.codec import is_open
from clearformer.config.settings import ALIASES, at, full_path, kind_named, kinds, paths, put
from clearformer.config.settings import spelled as name

Value = Any  # a dataclass of settings


def expand(word: str, default: Value) -> str:
    """Expand `--minutes` to `--train.minutes`; other or ambiguous words are returned unchanged."""
    if not word.startswith("--"):
        return word
    flag, equals, value = word[2:].partition("=")
    flag = ALIASES.get(name(flag), flag)
    own = {name(field.name) for field in fields(default)}
    if flag not in own:
        flag = full_path(flag, paths(default)) or _negated(flag, default) or flag
    return f"--{flag}{equals}{value}"


def _negated(flag: str, default: Value) -> str | None:
    """`no-compile` to `train.no-compile`, where the setting is yes or no."""
    if not flag.startswith("no-"):
        return None
    path = full_path(flag.removeprefix("no-"), paths(default))
    if path is None or not isinstance(at(default, path), bool):
        return None
    group, dot, setting = path.rpartition(".")
    return f"{group}{dot}no-{setting}"


def choose(words: Sequence[str], default: Value) -> tuple[list[str], Value]:
    """Set the values whose class was chosen, and remove these words."""
    several = kinds(default)
    long = [expand(word, default) for word in words]
    # Other flags are expanded later: which setting they match may depend on the chosen class.
    pairs = zip(words, long, strict=True)
    left = [full if full.partition("=")[0][2:] in several else word for word, full in pairs]
    for path, members in several.items():
        chosen = given(left, f"--{path}")
        if chosen is None:
            continue
        left = without(left, f"--{path}")
        kind = kind_named(chosen, members, f"--{path}")
        if not isinstance(at(default, path), kind):
            default = put(default, path, made(kind, path, left))
    return left, default


def spelled(words: Sequence[str], default: Value) -> list[str]:
    """`none` in the parser's spelling, after a flag whose setting is optional."""
    found = list(words)
    for place, (flag, word) in enumerate(pairwise(words)):
        path = flag[2:].replace("-", "_").split(".")
        if word.lower() == "none" and flag.startswith("--") and _may_be_absent(default, path):
            found[place + 1] = "None"
    return found


def _may_be_absent(value: Value, path: Sequence[str]) -> bool:
    hints = typing.get_type_hints(type(value)) if is_dataclass(value) else {}
    if len(path) > 1:
        return path[0] in hints and _may_be_absent(getattr(value, path[0]), path[1:])
    return types.NoneType in typing.get_args(hints.get(path[0]))


def made(kind: type, path: str, words: Sequence[str]) -> Any:
    """A value of this class; its required fields must be among the words."""
    if kind is types.NoneType:
        return None
    needed = {}
    for field in fields(kind):
        if field.default is MISSING and field.default_factory is MISSING:
            parts = [*path.split("."), name(field.name)]
            endings = [f"--{'.'.join(parts[start:])}" for start in range(len(parts))]
            text = next(filter(None, (given(words, ending) for ending in endings)), "")
            if not text.isdecimal():
                raise ValueError(
                    f"a {kind.__name__} needs {field.name}: add {endings[0]} with a number"
                )
            needed[field.name] = int(text)
    return kind(**needed)


def given(words: Sequence[str], flag: str) -> str | None:
    """The value of a flag, written as `--flag value` or `--flag=value`."""
    for word, following in zip_longest(words, words[1:]):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def without(words: Sequence[str], flag: str) -> list[str]:
    """The words without the flag and its value."""
    left, skip = [], False
    for word in words:
        if not skip and word != flag and not word.startswith(f"{flag}="):
            left.append(word)
        skip = word == flag
    return left


def names_of_open_settings() -> ConstructorRegistry:
    """For the parser: a setting that takes a name or a custom value is a name on a command line."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        members = typing.get_args(info.type)
        names = [name for m in members if typing.get_origin(m) is Literal for name in m.__args__]
        if not names or not any(map(is_open, members)):
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="{" + ",".join(names) + "}",
            instance_from_str=lambda words: words[0],
            is_instance=lambda value: True,
            str_from_instance=lambda value: [str(value)],
            choices=tuple(names),
        )

    return registry
