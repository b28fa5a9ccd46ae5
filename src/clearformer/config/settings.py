"""Settings by name: a full path, or the end of a path if it is unique.

`layers` is `model.layers`, `dropout.embedding` is `model.dropout.embedding`. A setting that takes
values of several classes also takes the name of a class: `optimizer="muon"`.
"""

from __future__ import annotations

import numbers
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any

from clearformer.config.codec import FORMER_KINDS, classes, is_open, to_json
from clearformer.config.run import RunConfig, run_from_json
from clearformer.did_you_mean import closest, nearest

# Names that differ from their setting: the usual ones, and the name of a whole group.
ALIASES = {
    "data": "data.source",
    "lr": "train.learning-rate",
    "text": "data.text-column",
    "label": "data.label-column",
    "adapter-targets": "train.adapter.targets",
    "adapter-dropout": "train.adapter.dropout",
}
BUDGETS = ("steps", "epochs", "minutes")
LEARNING_RATE_NEEDED = (
    "another optimizer needs another learning rate: add --lr (usual are 0.02 for Muon and "
    "1e-3 for AdamW)"
)


def with_settings(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """The config with other values, by name; ValueError for an unknown name or a wrong value."""
    document = to_json(config)
    waiting = dict(settings)
    given: set[str] = set()
    # Values of another class first, since other names may be those of their settings.
    while found := _first_choice(waiting, document):
        name, place = found
        place.set(waiting.pop(name))
        given.add(place.path)
    places = _places(RunConfig, document)
    for name, value in waiting.items():
        place = places[_path(name, places)]
        place.set(value)
        given.add(place.path)
    budgets = [each for each in BUDGETS if f"train.{each}" in given]
    if budgets:  # it replaces that of the config
        document["train"] |= {each: None for each in BUDGETS if each not in budgets}
    changed = run_from_json(document)
    other = type(changed.train.optimizer) is not type(config.train.optimizer)
    if other and ALIASES["lr"] not in given:
        raise ValueError(LEARNING_RATE_NEEDED)
    return changed


@dataclass(frozen=True)
class _Place:
    """A setting in the JSON of a config."""

    path: str
    annotation: Any
    parent: dict[str, Any]
    field: str

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The classes that its value may have; empty where there is no choice."""
        several = members(self.annotation)
        return several if len(several) > 1 and is_dataclass(several[0]) else ()

    def set(self, value: Any) -> None:
        if isinstance(value, str) and self.kinds:
            kind = kind_named(value, self.kinds, self.path.replace("-", "_"))
            self.parent[self.field] = None if kind is types.NoneType else _defaults(kind)
        else:
            self.parent[self.field] = to_json(_plain(value))


def _places(kind: type, document: dict[str, Any], path: str = "") -> dict[str, _Place]:
    """Every setting of a config in JSON, by path; the nearest to the root first."""
    hints = typing.get_type_hints(kind)
    found: dict[str, _Place] = {}
    for field in fields(kind):
        place = _Place(f"{path}{spelled(field.name)}", hints[field.name], document, field.name)
        found[place.path] = place
        inner = document.get(field.name)
        if isinstance(inner, dict):
            known: dict[str, type] = {
                each.__name__: each for each in members(place.annotation) if isinstance(each, type)
            }
            own = known[inner["kind"]]
            found |= _places(own, inner, f"{place.path}.")
    return found


def _first_choice(
    settings: Mapping[str, Any], document: dict[str, Any]
) -> tuple[str, _Place] | None:
    places = _places(RunConfig, document)
    for name in settings:
        path = full_path(name, [*places])
        if path is not None and places[path].kinds:
            return name, places[path]
    return None


def _path(name: str, places: Mapping[str, _Place]) -> str:
    """The path of a setting by its name; ValueError for one that is unknown or not clear."""
    path = full_path(name, [*places])
    if path is not None:
        return path
    several = [p.replace("-", "_") for p in places if f".{p}".endswith(f".{spelled(name)}")]
    if several:
        raise ValueError(f"{name!r} could be {' or '.join(several)}: give the whole path")
    known = [path.replace("-", "_") for path in (*places, *ALIASES)]
    known += [path.rpartition(".")[2] for path in known]
    guess = closest(name, known)
    hint = f"did you mean {guess!r}?" if guess else "see help(clearformer.train)"
    raise ValueError(f"train has no setting {name!r}: {hint}")


def _defaults(kind: Any) -> dict[str, Any]:
    """A value of this class in JSON, without the fields that have no default."""
    document = {"kind": kind.__name__}
    for field in fields(kind):
        if field.default is not MISSING:
            document[field.name] = to_json(field.default)
        elif field.default_factory is not MISSING:
            document[field.name] = to_json(field.default_factory())
    return document


def _plain(value: Any) -> Any:
    """A value in the form of the config; NumPy numbers, lists and paths are accepted too."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def full_path(given: str, known: Sequence[str]) -> str | None:
    """The path that a name stands for, by an alias or by its end; None: none, or several."""
    ending = f".{ALIASES.get(spelled(given), spelled(given))}"
    found = [path for path in known if f".{path}".endswith(ending)]
    shortest = [p for p in found if p.count(".") == min(q.count(".") for q in found)]
    return shortest[0] if len(shortest) == 1 else None


def kind_named(text: str, kinds: Sequence[Any], path: str) -> Any:
    """The class of this name, written in any case, with or without hyphens."""
    known = {"none" if kind is types.NoneType else kind.__name__: kind for kind in kinds}
    wanted = text.replace("-", "").replace("_", "").lower()
    wanted = {old.lower(): new.lower() for old, new in FORMER_KINDS.items()}.get(wanted, wanted)
    for name, kind in known.items():
        if name.lower() == wanted:
            return kind
    raise ValueError(f"{path} is {text!r}: {nearest(text, known)}")


def paths(value: Any, path: str = "") -> list[str]:
    """Every setting of a dataclass, including those that take values of several classes."""
    found = list(kinds(value)) if not path else []
    for field in fields(value):
        inner = getattr(value, field.name)
        own = f"{path}{spelled(field.name)}"
        if is_dataclass(inner):
            found += paths(inner, f"{own}.")
        else:
            found.append(own)
    return list(dict.fromkeys(found))


def kinds(value: Any, path: str = "") -> dict[str, tuple[Any, ...]]:
    """The settings that take values of several classes, by path."""
    found: dict[str, tuple[Any, ...]] = {}
    hints = typing.get_type_hints(type(value)) if is_dataclass(value) else {}
    for field in fields(value) if is_dataclass(value) else ():
        several = members(hints[field.name])
        own = f"{path}{spelled(field.name)}"
        if path and len(several) > 1 and is_dataclass(several[0]):
            found[own] = several
        found |= kinds(getattr(value, field.name), f"{own}.")
    return found


def members(annotation: Any) -> tuple[Any, ...]:
    """The classes that a setting may have: of a union, and all derived from an open base."""
    found = typing.get_args(annotation) or (annotation,)
    if typing.get_origin(annotation) not in (None, typing.Union, types.UnionType):
        return found
    opened = (classes(each) if is_open(each) else [each] for each in found)
    return tuple(kind for several in opened for kind in several)


def at(value: Any, path: str) -> Any:
    """The setting at a path."""
    for part in path.split("."):
        value = getattr(value, part.replace("-", "_"))
    return value


def put(value: Any, path: str, new: Any) -> Any:
    """The same settings with another value at a path."""
    first, dot, rest = path.partition(".")
    field = first.replace("-", "_")
    return replace(value, **{field: put(getattr(value, field), rest, new) if dot else new})


def spelled(field: str) -> str:
    """The flag spelling of a field."""
    return field.strip("_").replace("_", "-").lower()
