"""Configs as JSON: round trips, and error messages for data that does not fit."""

import dataclasses
import json
import re
from typing import Literal

import pytest

from clearformer import config as c
from clearformer.config import codec
from clearformer.families import preset, presets

EXTRAS = {
    "graph": c.Graph(edges=((0, 1), (2, 0)), nodes=3) | c.Local(window=1),
    "nested": c.Causal() & (c.Local(window=2) | c.Strided(stride=3) | c.Full()),
}


def changed(path, value, name="gpt2-small"):
    """The JSON of a preset with one value changed, or removed if it is `None`."""
    data = c.to_json(preset(name))
    *parents, last = path
    inner = data
    for parent in parents:
        inner = inner[parent]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return data


@pytest.mark.parametrize("name", presets())
def test_presets_round_trip_through_json(name):
    config = preset(name)
    again = c.model_from_json(json.loads(json.dumps(c.to_json(config))))
    assert again == config
    assert type(again) is type(config)


@pytest.mark.parametrize("pattern", EXTRAS)
def test_patterns_round_trip_through_json(pattern):
    config = dataclasses.replace(preset("gpt2"), patterns=(EXTRAS[pattern],), key_heads=3)
    assert c.model_from_json(json.loads(json.dumps(c.to_json(config)))) == config


def test_optional_values_may_be_absent_or_null():
    data = c.to_json(preset("gpt2"))
    assert data["key_heads"] is None
    del data["key_heads"], data["dropout"]["hidden"], data["biases"]
    assert c.model_from_json(data) == preset("gpt2")


def test_integers_are_read_as_floats_for_float_fields():
    config = c.model_from_json(changed(("position",), {"kind": "Rotary", "base": 500}))
    assert isinstance(config.position.base, float)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            changed(("widht",), 5),
            "model has an unknown field 'widht': did you mean 'width'?",
        ),
        (
            changed(("dropout", "residuals"), 0.1),
            "model.dropout has an unknown field 'residuals': did you mean 'residual'?",
        ),
        (changed(("width",), None), "model lacks the field 'width'"),
        (
            changed(("patterns",), [{"kind": "Local"}]),
            "model.patterns[0] lacks the field 'window'",
        ),
        (changed(("width",), "768"), "model.width is '768', but it must be a whole number"),
        (changed(("width",), 768.0), "model.width is 768.0, but it must be a whole number"),
        (changed(("layers",), True), "model.layers is True, but it must be a whole number"),
        (
            changed(("dropout", "residual"), False),
            "model.dropout.residual is False, but it must be a number",
        ),
        (changed(("key_heads",), "two"), "model.key_heads is 'two', but it must be a whole number"),
        (changed(("name",), 7), "model.name is 7, but it must be a text"),
        (
            changed(("position", "kind"), "Rotari"),
            "model.position has kind 'Rotari': did you mean 'Rotary'?",
        ),
        (
            changed(("position", "kind"), "?"),
            "model.position has kind '?': "
            "known: NoPosition, Learned, Sinusoidal, Rotary, RelativeXL, ALiBi, Grid",
        ),
        (
            changed(("position",), {}),
            "model.position has kind None: "
            "known: NoPosition, Learned, Sinusoidal, Rotary, RelativeXL, ALiBi, Grid",
        ),
        (changed(("head",), {"kind": ["NextToken"]}), "model.head has kind ['NextToken']: "),
        (changed(("norm",), 5), "model.norm has kind None: known: LayerNorm, RMSNorm"),
        (
            changed(("biases", "kind"), "Dropout"),
            "model.biases has kind 'Dropout', but it must be 'Biases'",
        ),
        (changed(("biases",), 5), "model.biases is 5, but it must be an object"),
        (
            changed(("activation",), "gelu_than"),
            "model.activation is 'gelu_than': did you mean 'gelu_tanh'?",
        ),
        (changed(("residual",), "both"), "model.residual is 'both': known: pre, post"),
        (
            changed(("patterns",), {"kind": "Causal"}),
            "model.patterns is {'kind': 'Causal'}, but it must be a list",
        ),
        (
            changed(("patterns",), [{"kind": "Graph", "nodes": 3, "edges": [[0, 1, 2]]}]),
            "model.patterns[0].edges[0] has 3 entries, but it must have 2",
        ),
        (
            changed(("patterns",), [{"kind": "Graph", "nodes": 3, "edges": [[0, "1"]]}]),
            "model.patterns[0].edges[0][1] is '1', but it must be a whole number",
        ),
        ([1, 2], "model has kind None: known: Seq2SeqConfig, ModelConfig"),
        (changed(("biases", "head"), 1), "model.biases.head is 1, but it must be true or false"),
        (changed(("heads",), 0), "ModelConfig: heads is 0, but it must be between 1 and"),
    ],
)
def test_rejects_invalid_json(data, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        c.model_from_json(data)


def test_rejects_text_with_lone_surrogate():
    """JSON can contain a lone surrogate, which cannot be encoded as UTF-8."""
    told = c.to_json(preset("classifier"))
    told["head"]["names"] = ["good", json.loads('"\\ud800"')]
    with pytest.raises(ValueError, match=r"names\[1\] is '\\ud800', which is not valid Unicode"):
        c.model_from_json(told)


def test_error_message_length_is_bounded():
    told = c.to_json(preset("gpt2"))
    for name, value in (("kind", "x" * 10**6), ("x" * 10**6, 1), ("width", 10**4000)):
        with pytest.raises(ValueError, match=r"kind|unknown field|width") as problem:
            c.model_from_json({**told, name: value})
        assert len(str(problem.value)) < 1000


class Shape:
    """An open base, as `Pattern` is."""


@dataclasses.dataclass(frozen=True)
class _Sized(Shape):
    size: int


@dataclasses.dataclass(frozen=True)
class Square(_Sized):
    """Derived from a base in between."""


@dataclasses.dataclass(frozen=True)
class Pair(Shape):
    first: Shape
    second: Shape | None = None


def test_open_base_accepts_every_derived_dataclass():
    value = Pair(Square(2), Pair(Square(3)))
    assert codec.from_json(Shape, json.loads(json.dumps(c.to_json(value))), "shape") == value
    assert codec.from_json(Shape | None, None, "shape") is None
    assert codec.from_json(Literal["none"] | Shape, "none", "shape") == "none"
    assert codec.from_json(Literal["none"] | Shape, c.to_json(Square(2)), "shape") == Square(2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"kind": "Circle"},
            "shape has kind 'Circle': known: Square, Pair (if it is your own class, import "
            "the module that defines it first)",
        ),
        ({"kind": "_Sized", "size": 1}, "shape has kind '_Sized': known: Square, Pair (if it is"),
        ({"kind": "os.system"}, "shape has kind 'os.system': known: Square, Pair (if it is"),
        ({"size": 1}, "shape has kind None: known: Square, Pair"),
        (5, "shape has kind None: known: Square, Pair"),
        ({"kind": "Square", "side": 1}, "shape has an unknown field 'side': did you mean 'size'?"),
    ],
)
def test_rejects_unknown_class_with_advice(data, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        codec.from_json(Shape, data, "shape")


def test_rejects_two_classes_with_same_name():
    class Figure:
        pass

    def defined(module):
        inside = {"__module__": module}
        return dataclasses.make_dataclass(
            "Disc", [("size", int)], bases=(Figure,), namespace=inside
        )

    first = defined("one")
    assert type(codec.from_json(Figure, {"kind": "Disc", "size": 1}, "figure")) is first
    again = defined("one")  # as a notebook's cell does that is run twice
    assert type(codec.from_json(Figure, {"kind": "Disc", "size": 1}, "figure")) is again
    other = defined("two")
    message = (
        "figure has kind 'Disc', but there are 2 classes of that name, one.Disc and two.Disc: "
        "rename one of them"
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        codec.from_json(Figure, {"kind": "Disc", "size": 1}, "figure")
    assert other is not first


def test_to_json_rejects_class_that_is_not_a_dataclass():
    message = "Shape cannot be written to a config file: make it a frozen dataclass"
    with pytest.raises(ValueError, match=f"^{message}"):
        c.to_json((Shape(),))


def test_reads_names_of_earlier_versions():
    old = c.to_json(preset("modern-tiny"))
    del old["attention_output"], old["head_width"]
    scaling = {"kind": "SlowerBelow", "factor": 8.0, "low": 1.0, "high": 4.0, "length": 64}
    old |= {"per_head": 48, "position": {"kind": "Rotary", "scaling": scaling}}
    found = c.model_from_json(old)
    assert (found.head_width, found.attention_output) == (48, "linear")
    assert found.position.scaling == c.Llama3Scaling(factor=8.0, low=1.0, high=4.0, length=64)
    old["position"]["scaling"] = {"kind": "Slower", "factor": 2.0}
    assert c.model_from_json(old).position == c.Rotary(scaling=c.LinearScaling(factor=2.0))
    assert c.model_from_json(c.to_json(found)) == found
