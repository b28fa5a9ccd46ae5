"""JSON schemas as patterns: they match exactly the valid values."""

import json

import pytest

from clearformer.generate.constraints import RegexConstraint
from clearformer.generate.json_schema import any_object, parse_schema, schema_pattern
from clearformer.generate.regex_automaton import automaton
from clearformer.text import Bytes

POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
PERSON = {
    "type": "object",
    "title": "a person",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", 'b"']}, "maxItems": 2},
        "at": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/point"}]},
    },
    "required": ["name", "at"],
    "additionalProperties": False,
    "$defs": {"point": POINT},
}
CASES = [
    (PERSON, {"name": "Bo", "at": None}, True),
    (PERSON, {"name": "Bo", "age": -30, "tags": [], "at": {"x": -1.5e-3}}, True),
    (PERSON, {"name": 'é"\\\n', "tags": ["a", 'b"'], "at": None}, True),
    (PERSON, {"age": 1, "at": None}, False),
    (PERSON, {"name": "", "at": None}, False),
    (PERSON, {"name": "longer", "at": None}, False),
    (PERSON, {"name": "Bo", "tags": ["c"], "at": None}, False),
    (PERSON, {"name": "Bo", "tags": ["a", "a", "a"], "at": None}, False),
    (PERSON, {"name": "Bo", "at": {}}, False),
    (PERSON, {"name": "Bo", "at": None, "more": 1}, False),
    ({"type": ["integer", "null"]}, None, True),
    ({"type": ["integer", "null"]}, 1.5, False),
    ({"type": "integer", "minimum": -1, "maximum": 12}, -1, True),
    ({"type": "integer", "minimum": -1, "maximum": 12}, 13, False),
    ({"const": "a, b"}, "a, b", True),
    ({"const": "a, b"}, "a", False),
    ({"type": "string", "format": "date"}, "2024-12-31", True),
    ({"type": "string", "format": "date"}, "2024-13-31", False),
    ({"type": "string", "format": "date"}, "2024-02-29", True),
    ({"type": "string", "format": "date"}, "2023-02-29", False),
    ({"type": "string", "format": "date"}, "1900-02-29", False),
    ({"type": "string", "format": "date"}, "0000-01-01", False),
    ({"type": "object", "properties": {"a": {"title": "A"}}}, {"a": [1, "x"]}, True),
    ({"oneOf": [{"type": "null"}, {"enum": [1, "a"]}]}, "a", True),
    ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}}, None, True),
    ({"type": "array", "minItems": 2, "items": {"type": "boolean"}}, [True], False),
    ({"type": "array", "minItems": 2, "items": {"type": "boolean"}}, [True, False, True], True),
    ({"type": "array", "maxItems": 0}, [], True),
    ({"properties": {"a": {"type": "null"}}}, {}, True),
    ({"properties": {"a": {"type": "null"}, "b": {"type": "null"}}}, {"b": None}, True),
    (True, {"a": [1]}, True),
    ({"type": "object"}, {"a": [1, "b"], "c": {}}, True),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1, "b": 2}, True),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "x"}, False),
    ({"type": "object", "additionalProperties": False}, {}, True),
    ({"type": "integer", "enum": ["a", 1, True]}, 1, True),
    ({"type": "integer", "enum": ["a", 1, True]}, "a", False),
    ({"type": "integer", "enum": ["a", 1, True]}, True, False),
    ({"type": ["number", "null"], "enum": ["a", 1, None]}, None, True),
    ({"type": "number", "const": 5}, 5, True),
    ({"type": "integer", "const": 5.0}, 5.0, True),
]


def accepts(pattern, text):
    machine, state = automaton(pattern)
    for byte in text.encode():
        state = machine.step(state, byte)
    return machine.end in state


@pytest.mark.parametrize(("schema", "value", "follows"), CASES)
def test_pattern_accepts_exactly_valid_values(schema, value, follows):
    pattern = schema_pattern(schema)
    for separators in ((", ", ": "), (",", ":")):
        text = json.dumps(value, ensure_ascii=False, separators=separators)
        assert accepts(pattern, text) == follows


def tagged(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    ("one", "other", "disjoint"),
    [
        ({"type": "integer"}, {"type": "number"}, False),
        ({"type": "string"}, {"type": ["integer", "null"]}, True),
        ({"const": 1}, {"const": True}, True),
        ({"const": 1}, {"enum": ["a", 1.0]}, False),
        ({"enum": ["a", "b"]}, {"enum": ["c"]}, True),
        ({"type": "string"}, {"const": "a"}, False),
        (tagged(kind={"const": "a"}), tagged(kind={"const": "b"}, x={"type": "null"}), True),
        (tagged(kind={"const": "a"}), {"properties": {"kind": {"const": "b"}}}, False),
        ({"$ref": "#/$defs/t"}, {"type": "null"}, True),
        ({"$ref": "#/$defs/t"}, {"$ref": "#/$defs/t"}, False),
    ],
)
def test_alternatives_of_one_of_must_exclude_each_other(one, other, disjoint):
    schema = {"oneOf": [one, other], "$defs": {"t": {"type": "boolean"}}}
    if disjoint:
        assert schema_pattern(schema)
    else:
        with pytest.raises(ValueError, match="may both allow the same value"):
            schema_pattern(schema)


def test_alternatives_that_contain_themselves_are_compared_once():
    """Each pair of schemas, not each path to it."""
    one, other = ({"$ref": f"#/$defs/{name}"} for name in "ab")
    own = {
        "a": tagged(**dict.fromkeys("defghijk", one)),
        "b": tagged(**dict.fromkeys("defghijk", other)),
    }
    schema = {"oneOf": [one, other], "$defs": own}
    with pytest.raises(ValueError, match="may both allow the same value"):
        schema_pattern(schema)


def test_too_many_alternatives_of_one_of_are_refused():
    schema_pattern({"oneOf": [{"const": n} for n in range(200)]})
    with pytest.raises(ValueError, match="need more than 20,000 comparisons: use anyOf, or fewer"):
        schema_pattern({"oneOf": [{"const": n} for n in range(202)]})


def test_any_object_pattern():
    assert accepts(any_object(), '{"a": {"b": [1, 2, "x"]}, "c": null}')
    assert not accepts(any_object(), "[1]")
    assert not accepts(any_object(), '{"a": }')


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (False, "no text can follow the schema: schema cannot be met, because it is false"),
        ({"enum": []}, r"schema.enum cannot be met, because it is empty"),
        ({"anyOf": []}, r"schema.anyOf cannot be met, because it is empty"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "its minLength 3 is above its maxL"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "its minItems 3 is above its maxItems 2"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "its minimum 3 is above its maximum 2"),
        ({"type": "string", "const": 5}, "because none of its values has the type string"),
        ({"type": "integer", "enum": ["a"]}, "because none of its values has the type integer"),
        ({"const": float("nan")}, "a value of `const` or `enum` is NaN or infinite, which JSON"),
        ({"enum": [1, {"a": float("inf")}]}, "is NaN or infinite, which JSON cannot write"),
        ({"type": "tuple", "const": 5}, "schema.type is 'tuple', but it must be one of object"),
        (
            {"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}},
            "has properties and a schema for additionalProperties, which are not supported",
        ),
        ({"type": "object", "required": ["a"]}, "it requires 'a', which is not among its prop"),
        ("text", "schema is 'text', but a schema must be an object"),
        ({"type": "tuple"}, "schema.type is 'tuple', but it must be one of object, array, string"),
        ({"type": "string", "pattern": "a"}, "has the keyword 'pattern', which is not supported"),
        ({"type": "number", "minimum": 1}, "has the keyword 'minimum', which is not supported"),
        ({"type": "string", "format": "email"}, "schema.format is 'email', but it must be one of"),
        ({"type": "integer", "minimum": 3}, "minimum is 3 and maximum None, but both must be"),
        (
            {"type": "integer", "minimum": 0, "maximum": 9999},
            "has 10,000 values, but at most 1,000",
        ),
        ({"type": "string", "maxLength": -1}, "schema.maxLength is -1, but it must be a whole"),
        ({"type": "string", "minLength": None}, "schema.minLength is None, but it must be a whole"),
        ({"type": "string", "format": {}}, "schema.format is {}, but it must be one of date"),
        ({"type": "object", "required": [[1]]}, r"it requires \[1\], which is not among its prop"),
        ({"allOf": [{"type": "null"}]}, "has the keyword 'allOf', which is not supported"),
        ({"minLength": 3}, "schema has no type: add one of object, array, string"),
        (
            {"oneOf": [{"type": "number"}, {"type": "null"}, {"const": 1}]},
            r"schema.oneOf\[0\] and \[2\] may both allow the same value: use anyOf",
        ),
        ({"$ref": "#/$defs/x"}, "is '#/\\$defs/x', which the schema does not have"),
        ({"$ref": "http://x"}, "is 'http://x', but it must begin with #/"),
        (
            {
                "$ref": "#/$defs/x",
                "$defs": {"x": {"type": "array", "items": {"$ref": "#/$defs/x"}}},
            },
            "within itself, which is not supported",
        ),
    ],
)
def test_rejects_unsupported_schemas(schema, sentence):
    with pytest.raises(ValueError, match=sentence):
        schema_pattern(schema)


def test_rejects_deeply_nested_schema():
    schema = {"type": "null"}
    for _ in range(17):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ValueError, match="is nested deeper than 16 levels"):
        schema_pattern(schema)


@pytest.mark.parametrize("kind", ["anyOf", "array", "object"])
def test_rejects_schema_that_grows_exponentially(kind):
    """Its pattern would have 30 ** 4 parts."""

    def level(number):
        refs = [{"$ref": f"#/$defs/{number + 1}"}] * 30
        return {
            "anyOf": {"anyOf": refs},
            "array": {"type": "array", "items": {"anyOf": refs}},
            "object": {"properties": {str(place): ref for place, ref in enumerate(refs)}},
        }[kind]

    levels = {str(number): level(number) for number in range(4)}
    schema = {"$ref": "#/$defs/0", "$defs": {**levels, "4": {"type": "string"}}}
    with pytest.raises(ValueError, match="is too large: simplify the schema"):
        schema_pattern(schema)


def test_rejects_schema_with_too_many_states():
    schema = {"type": "array", "minItems": 2000, "items": {"type": "string", "minLength": 2000}}
    with pytest.raises(ValueError, match="it needs more than 20,000 states"):
        RegexConstraint(schema_pattern(schema), Bytes())


def test_schema_can_be_given_as_text():
    assert parse_schema('{"type": "null"}') == {"type": "null"}
    with pytest.raises(ValueError, match="`json_schema` is not JSON"):
        parse_schema("{")


def test_random_model_generates_valid_json(writer):
    from clearformer.generate.options import GenerationOptions

    model = writer("gpt2", Bytes(), vocabulary=256, length=24)
    options = GenerationOptions(json_schema=PERSON, max_tokens=400, samples=4)
    for text in options.prepare(model).completions(["x"]):
        assert text.finish_reason in ("complete", "length")
        if text.finish_reason == "complete":
            assert set(json.loads(text.text)) >= {"name", "at"}


def test_rejects_schema_with_other_constraints():
    from clearformer.generate.options import GenerationOptions

    for other in ({"pattern": "a"}, {"choices": ["a"]}):
        with pytest.raises(ValueError, match="give either"):
            GenerationOptions(json_schema=POINT, **other)
