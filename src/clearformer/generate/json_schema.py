"""JSON schemas as regular expressions, for generated text that is valid JSON.

A schema becomes a pattern for `constraints.RegexConstraint`. Supported are objects with listed
properties (written in the order of the schema), arrays, strings, numbers, booleans, null, `enum`,
`const`, `anyOf`, `oneOf` and references to `$defs` that do not recurse. A keyword that is not
supported is refused by name: a text that only seems to follow its schema would be worse.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

MAX_DEPTH = 16
MAX_PROPERTIES = 100
MAX_PATTERN = 1_000_000  # characters
MAX_INTEGERS = 1000  # values of an integer with a minimum and a maximum
MAX_COMPARISONS = 20_000  # pairs of schemas that the alternatives of `oneOf` lead to
FREE_DEPTH = 3  # nesting of values whose schema allows everything
CHARACTER = r'([^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})'
DIGITS = "(0|[1-9][0-9]{0,15})"
INTEGER = f"-?{DIGITS}"
NUMBER = rf"-?{DIGITS}(\.[0-9]{{1,15}})?([eE][+\-]?[0-9]{{1,3}})?"
LEAP_YEAR = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][48]|[2468]0|[13579][26])00)"
DATE = (
    r"(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"  # the year 0000 is in no calendar
    "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    "|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    f"|02-(0[1-9]|1[0-9]|2[0-8]))|{LEAP_YEAR}-02-29)"
)
TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](Z|[+\-][0-9]{2}:[0-9]{2})"
HEX = "[0-9a-f]"
FORMATS = {
    "date": DATE,
    "time": TIME,
    "date-time": f"{DATE}T{TIME}",
    "uuid": f"{HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}}",
}
# Keywords that do not restrict a value.
NOTES = {
    "title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs",
    "definitions", "deprecated", "readOnly", "writeOnly",
}  # fmt: skip
KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "format"},
    "integer": {"minimum", "maximum"},
    "number": set(),
    "boolean": set(),
    "null": set(),
}
TYPES = {
    dict: {"object"},
    list: {"array"},
    str: {"string"},
    int: {"integer", "number"},
    float: {"number"},
    bool: {"boolean"},
    type(None): {"null"},
}


Values = set[tuple[str, str]]  # types and JSON texts


def schema_pattern(schema: object) -> str:
    """The regular expression of the JSON texts that follow a schema; ValueError if there is none.

    After a comma or a colon there may be one space.
    """
    return _Schemas(schema).pattern(schema, "schema", 0)


def parse_schema(schema: Mapping[str, object] | str) -> object:
    """A schema that may be given as JSON text."""
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"`json_schema` is not JSON: {problem}") from None


def any_object() -> str:
    """The regular expression of any JSON object whose values are nested at most a few levels."""
    return _object_of(_any_value(FREE_DEPTH))


class _Schemas:
    """Patterns of the schemas within one document; `where` is the path of each, for messages."""

    def __init__(self, root: object) -> None:
        self.root = root
        self.open: list[str] = []  # references that are being followed
        self.followed: dict[tuple[str, int], str] = {}  # patterns by reference and depth
        # By the `id` of schemas, which stay in memory with the root.
        self.compared: dict[tuple[int, int], bool] = {}
        self.possible: dict[int, tuple[set[str], Values | None]] = {}

    def pattern(self, schema: object, where: str, depth: int) -> str:
        (found,) = _limited([self._pattern(schema, where, depth)], where)
        return found

    def _pattern(self, schema: object, where: str, depth: int) -> str:
        if depth > MAX_DEPTH:
            raise ValueError(
                f"{where} is nested deeper than {MAX_DEPTH} levels: flatten the schema"
            )
        if schema is False:
            raise _unmet(where, "it is false, which allows no value")
        if schema is not True and not isinstance(schema, Mapping):
            raise ValueError(f"{where} is {schema!r:.60}, but a schema must be an object")
        if schema is True or NOTES.issuperset(schema):
            return _any_value(max(1, FREE_DEPTH - depth))
        if "$ref" in schema:
            return self._reference(schema, where, depth)
        for name in ("anyOf", "oneOf"):
            if name in schema:
                _require_keywords(schema, {name}, where)
                parts = _list_of(schema[name], f"{where}.{name}")
                if name == "oneOf":
                    self._require_disjoint(parts, where)
                patterns = (
                    self.pattern(part, f"{where}.{name}[{place}]", depth + 1)
                    for place, part in enumerate(parts)
                )
                return _either(_limited(patterns, where))
        if "const" in schema:
            _require_keywords(schema, {"const", "type"}, where)
            return _values([schema["const"]], schema, where)
        if "enum" in schema:
            _require_keywords(schema, {"enum", "type"}, where)
            return _values(_list_of(schema["enum"], f"{where}.enum"), schema, where)
        return self._typed(schema, where, depth)

    def _typed(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        if "type" not in schema and "properties" not in schema:
            _require_keywords(schema, set().union(*KEYWORDS.values()), where)
            raise ValueError(f"{where} has no type: add one of {', '.join(KEYWORDS)}")
        names = _type_names(schema.get("type", "object"), where)
        _require_keywords(schema, {"type"}.union(*(KEYWORDS[kind] for kind in names)), where)
        makers: dict[str, Callable[[], str]] = {
            "object": lambda: self._object(schema, where, depth),
            "array": lambda: self._array(schema, where, depth),
            "string": lambda: _string(schema, where),
            "integer": lambda: _integer(schema, where),
            "number": lambda: NUMBER,
            "boolean": lambda: "(true|false)",
            "null": lambda: "null",
        }
        return _either(_limited((makers[kind]() for kind in names), where))

    def _reference(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        _require_keywords(schema, {"$ref"}, where)
        name = schema["$ref"]
        if not isinstance(name, str) or not name.startswith("#/"):
            raise ValueError(f"{where}.$ref is {name!r:.60}, but it must begin with #/")
        if name in self.open:
            raise ValueError(
                f"{where} refers to {name!r:.60} within itself, which is not supported: write out "
                f"the levels that you need"
            )
        if (name, depth) in self.followed:
            return self.followed[name, depth]
        self.open.append(name)
        found = self.pattern(self._target(name, where), name, depth + 1)
        self.open.pop()
        self.followed[name, depth] = found
        return found

    def _target(self, name: str, where: str) -> Any:
        """The schema that a reference names."""
        target: Any = self.root
        for part in name[2:].split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, Mapping) or part not in target:
                raise ValueError(f"{where}.$ref is {name!r:.60}, which the schema does not have")
            target = target[part]
        return target

    def _require_disjoint(self, parts: Sequence[Any], where: str) -> None:
        """Raise ValueError unless no value can follow two of the schemas of `oneOf`."""
        for (first, one), (second, other) in combinations(enumerate(parts), 2):
            if not self._disjoint(one, other, 0):
                raise ValueError(
                    f"{where}.oneOf[{first}] and [{second}] may both allow the same value: use "
                    f"anyOf, or give each a property with a different const"
                )

    def _disjoint(self, one: Any, other: Any, depth: int) -> bool:
        """Whether it is certain that no value follows both schemas."""
        one, other = self._followed(one), self._followed(other)
        if not isinstance(one, Mapping) or not isinstance(other, Mapping) or depth > MAX_DEPTH:
            return False
        pair = id(one), id(other)
        if pair not in self.compared:
            if len(self.compared) >= MAX_COMPARISONS:
                raise ValueError(
                    f"the alternatives of oneOf need more than {MAX_COMPARISONS:,} comparisons: "
                    f"use anyOf, or fewer alternatives"
                )
            self.compared[pair] = False  # until it is known, since a schema may contain itself
            self.compared[pair] = self._told_apart(one, other, depth)
        return self.compared[pair]

    def _told_apart(self, one: Mapping[str, Any], other: Mapping[str, Any], depth: int) -> bool:
        """Whether their types, their values or a property that both require differ."""
        (types, values), (other_types, other_values) = self._possible(one), self._possible(other)
        if types.isdisjoint(other_types):
            return True
        if values is not None and other_values is not None:
            return values.isdisjoint(other_values)
        first, second = one.get("properties"), other.get("properties")
        if types != {"object"} or other_types != {"object"}:
            return False
        if not isinstance(first, Mapping) or not isinstance(second, Mapping):
            return False
        both = _required_names(one) & _required_names(other)
        return any(
            self._disjoint(first[name], second[name], depth + 1)
            for name in first
            if name in both and name in second
        )

    def _possible(self, schema: Mapping[str, Any]) -> tuple[set[str], Values | None]:
        """The types that values of a schema may have, and the values if they are listed."""
        key = id(schema)
        if key not in self.possible:
            values = _possible_values(schema)
            self.possible[key] = _possible_types(schema, values), values
        return self.possible[key]

    def _followed(self, schema: Any) -> Any:
        """The schema that a chain of references leads to."""
        for _ in range(MAX_DEPTH):
            name = schema.get("$ref") if isinstance(schema, Mapping) else None
            if not isinstance(name, str) or not name.startswith("#/"):
                return schema
            schema = self._target(name, "schema")
        return None

    def _object(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            raise ValueError(f"{where}: properties must be an object, and required a list")
        if len(properties) > MAX_PROPERTIES:
            raise ValueError(f"{where} has more than {MAX_PROPERTIES} properties: use fewer")
        for name in required:
            if not isinstance(name, str) or name not in properties:
                raise _unmet(where, f"it requires {name!r:.60}, which is not among its properties")
        additional = schema.get("additionalProperties", True)
        if not properties:
            if additional is False:
                return r"\{\}"
            return _object_of(self.pattern(additional, f"{where}.additionalProperties", depth + 1))
        if additional not in (True, False, {}):
            raise ValueError(
                f"{where} has properties and a schema for additionalProperties, which are not "
                f"supported together: leave one out"
            )
        patterns = (
            f"{_literal(name)}: ?{self.pattern(part, f'{where}.{name}', depth + 1)}"
            for name, part in properties.items()
        )
        are_required = [name in required for name in properties]
        members = list(zip(_limited(patterns, where), are_required, strict=True))
        return rf"\{{{_members(members, where)}\}}"

    def _array(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        item = self.pattern(schema.get("items", True), f"{where}.items", depth + 1)
        least, most = _bounds(schema, "minItems", "maxItems", where)
        if most == 0:
            return r"\[\]"
        more = _count(max(0, least - 1), None if most is None else most - 1)
        some = f"{item}(, ?{item}){more}"
        return rf"\[{some}\]" if least else rf"\[({some})?\]"


def _members(members: Sequence[tuple[str, bool]], where: str) -> str:
    """Members in their order, those that are not required or all, with commas between them."""
    rest = [f", ?{part}" if required else f"(, ?{part})?" for part, required in members]
    fixed = next((place for place, each in enumerate(members) if each[1]), None)
    firsts = members if fixed is None else members[: fixed + 1]  # those that may come first
    choices = (part + "".join(rest[place + 1 :]) for place, (part, _) in enumerate(firsts))
    pattern = _either(_limited(choices, where))
    return f"({pattern})?" if fixed is None else pattern


def _values(values: Sequence[object], schema: Mapping[str, Any], where: str) -> str:
    """Exactly these values, as far as they have the type of the schema."""
    if "type" in schema:
        names = _type_names(schema["type"], where)
        values = [value for value in values if not _types_of(value).isdisjoint(names)]
        if not values:
            raise _unmet(where, f"none of its values has the type {' or '.join(names)}")
    return _either(_limited(map(_literal, values), where))


def _types_of(value: object) -> set[str]:
    """The names of a value's types; 1.0 is an integer too."""
    whole = isinstance(value, float) and value.is_integer()
    return TYPES[int] if whole else TYPES.get(type(value), set())


def _required_names(schema: Mapping[str, Any]) -> set[str]:
    names = schema.get("required")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _possible_types(schema: Mapping[str, Any], values: Values | None) -> set[str]:
    """The types that values of a schema may have; `number` includes `integer`."""
    if values is not None:
        return {{"number": "integer"}.get(kind, kind) for kind, _ in values}
    kinds = schema.get("type", "object" if "properties" in schema else list(KEYWORDS))
    names = kinds if isinstance(kinds, list) else [kinds]
    return {"integer" if name == "number" else str(name) for name in names}


def _possible_values(schema: Mapping[str, Any]) -> Values | None:
    """Type and JSON text of the values of `const` or `enum`; None if others are allowed too."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list):
        return None
    found = set()
    for value in values:
        whole = isinstance(value, float) and value.is_integer()
        value = int(value) if whole else value
        kind = "array" if isinstance(value, list) else min(TYPES.get(type(value), {"null"}))
        found.add((kind, json.dumps(value, sort_keys=True)))
    return found


def _type_names(kinds: object, where: str) -> list[str]:
    names: list[Any] = kinds if isinstance(kinds, list) else [kinds]
    for kind in names:
        if not isinstance(kind, str) or kind not in KEYWORDS:
            raise ValueError(
                f"{where}.type is {kind!r:.60}, but it must be one of {', '.join(KEYWORDS)}"
            )
    return names


def _string(schema: Mapping[str, Any], where: str) -> str:
    if "format" in schema:
        _require_keywords(schema, {"type", "format"}, where)
        if schema["format"] not in list(FORMATS):  # a list: the format may be any JSON value
            raise ValueError(
                f"{where}.format is {schema['format']!r:.60}, but it must be one of "
                f"{', '.join(FORMATS)}, or left out"
            )
        return f'"{FORMATS[schema["format"]]}"'
    least, most = _bounds(schema, "minLength", "maxLength", where)
    return f'"{CHARACTER}{_count(least, most)}"'


def _integer(schema: Mapping[str, Any], where: str) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and high is None:
        return INTEGER
    if type(low) is not int or type(high) is not int:
        raise ValueError(
            f"{where}: minimum is {low!r:.40} and maximum {high!r:.40}, but both must be whole "
            f"numbers, or left out"
        )
    if low > high:
        raise _unmet(where, f"its minimum {low} is above its maximum {high}")
    if high - low >= MAX_INTEGERS:
        raise ValueError(
            f"{where} has {high - low + 1:,} values, but at most {MAX_INTEGERS:,} are supported "
            f"between a minimum and a maximum: leave both out"
        )
    return _either(str(value) for value in range(low, high + 1))


def _bounds(schema: Mapping[str, Any], low: str, high: str, where: str) -> tuple[int, int | None]:
    for name in (low, high):
        value = schema.get(name, 0)
        if type(value) is not int or value < 0:
            raise ValueError(
                f"{where}.{name} is {value!r:.40}, but it must be a whole number of at least 0"
            )
    least, most = schema.get(low, 0), schema.get(high)
    if most is not None and least > most:
        raise _unmet(where, f"its {low} {least} is above its {high} {most}")
    return least, most


def _count(least: int, most: int | None) -> str:
    return f"{{{least},{'' if most is None else most}}}" if (least, most) != (0, None) else "*"


def _any_value(depth: int) -> str:
    """Any JSON value with at most this many levels."""
    plain = [f'"{CHARACTER}*"', NUMBER, "true", "false", "null"]
    if depth <= 1:
        return _either(plain)
    inner = _any_value(depth - 1)
    return _either([*plain, rf"\[({inner}(, ?{inner})*)?\]", _object_of(inner)])


def _object_of(value: str) -> str:
    member = f'"{CHARACTER}*": ?{value}'
    return rf"\{{({member}(, ?{member})*)?\}}"


def _literal(value: object) -> str:
    """The pattern of exactly this value."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "), allow_nan=False)
    except ValueError:
        raise ValueError(
            "a value of `const` or `enum` is NaN or infinite, which JSON cannot write: leave it out"
        ) from None
    return "".join(letter if letter.isalnum() else f"\\{letter}" for letter in text)


def _either(patterns: Iterable[str]) -> str:
    return f"({'|'.join(patterns)})"


def _limited(patterns: Iterable[str], where: str) -> Iterator[str]:
    """The patterns, until they are too long together: nested references grow exponentially."""
    size = 0
    for pattern in patterns:
        size += len(pattern)
        if size > MAX_PATTERN:
            raise ValueError(f"{where} is too large: simplify the schema")
        yield pattern


def _list_of(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{where} is {value!r:.60}, but it must be a list")
    if not value:
        raise _unmet(where, "it is empty")
    return value


def _require_keywords(schema: Mapping[str, Any], known: set[str], where: str) -> None:
    for name in schema:
        if name not in known and name not in NOTES:
            raise ValueError(
                f"{where} has the keyword {name!r:.60}, which is not supported here: leave it out"
            )


def _unmet(where: str, why: str) -> ValueError:
    return ValueError(f"no text can follow the schema: {where} cannot be met, because {why}")
