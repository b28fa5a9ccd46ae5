"""ModelConfig: validation and derived values."""

import dataclasses
import re

import pytest

from clearformer import config as c
from clearformer.families import preset


def test_derived_values():
    assert preset("gpt2-xl").resolved_head_width == 64
    assert dataclasses.replace(preset("gpt2"), head_width=80).resolved_head_width == 80
    assert preset("gpt2").scale == 1.0
    assert preset("original").scale == pytest.approx(512**0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *(
            (
                lambda name=name: dataclasses.replace(preset("gpt2"), **{name: 0}),
                f"ModelConfig: {name} is 0, but it must be between 1 and {c.model.MOST[name]} "
                f"(MAX_{name.upper()})",
            )
            for name in ("vocabulary", "length", "layers", "width", "heads", "hidden")
        ),
        (
            lambda: dataclasses.replace(preset("gpt2"), vocabulary=2**31 + 1),
            "ModelConfig: vocabulary is 2147483649, but it must be between 1 and 4194304 "
            "(MAX_VOCABULARY)",
        ),
        (
            lambda: dataclasses.replace(preset("gpt2"), head_width=0),
            "ModelConfig: head_width is 0, but it must be from 1 to 65536, or absent",
        ),
        (
            lambda: dataclasses.replace(preset("gpt2"), head_width=80, attention_output="none"),
            "ModelConfig: attention_output is 'none', but it must be 'linear' unless the heads "
            "together are as wide as the model (768), but it has 12 heads of 80",
        ),
        (
            lambda: dataclasses.replace(preset("gpt2"), key_heads=13),
            "ModelConfig: key_heads is 13, but it must be between 1 and heads, which is 12",
        ),
        (
            lambda: dataclasses.replace(preset("gpt2"), key_heads=0),
            "ModelConfig: key_heads is 0, but it must be between 1 and heads, which is 12",
        ),
        (
            lambda: dataclasses.replace(preset("bert"), segments=0),
            "ModelConfig: segments is 0, but it must be from 1 to 1024, or absent",
        ),
        (
            lambda: dataclasses.replace(preset("gpt2"), patterns=()),
            "ModelConfig: patterns is (), but it must be at least one pattern",
        ),
        (
            lambda: dataclasses.replace(preset("original"), decoder_layers=0),
            "Seq2SeqConfig: decoder_layers is 0, but it must be between 1 and 1000",
        ),
        (
            lambda: c.Dropout(hidden=1.0),
            "Dropout: hidden is 1.0, but it must be at least 0 and below 1",
        ),
        (
            lambda: c.Dropout(embedding=-0.1),
            "Dropout: embedding is -0.1, but it must be at least 0 and below 1",
        ),
        (lambda: c.Local(window=0), "Local: window is 0, but it must be at least 1"),
        (lambda: c.Strided(stride=0), "Strided: stride is 0, but it must be at least 1"),
        (
            lambda: c.Fixed(stride=4, summary=5),
            "Fixed: summary is 5, but it must be at most the stride, 4",
        ),
        (lambda: c.Rotary(base=0.0), "Rotary: base is 0.0, but it must be above 0"),
        (
            lambda: c.Classifier(classes=1),
            "Classifier: classes is 1, but it must be at least 2 and at most 100000",
        ),
        (
            lambda: c.HiddenMemory(length=-1),
            "HiddenMemory: length is -1, but it must be at least 0 and at most 16777216",
        ),
    ],
)
def test_rejects_values_out_of_range(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()


def test_config_of_earlier_version_gets_its_family():
    data = c.to_json(preset("gpt2-small"))
    del data["family"]
    assert c.model_from_json(data) == preset("gpt2-small")
    assert c.model_from_json({**data, "name": "mine", "family": None}).family is None
