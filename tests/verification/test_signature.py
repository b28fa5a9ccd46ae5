"""Signatures: argument roles by name."""

import pytest
from torch import nn

from clearformer.verification.signature import (
    config_of,
    parameters_of,
    required_arguments,
    role_of,
)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("input_ids", "stream"),
        ("x", "stream"),
        ("attention_mask", "padding"),
        ("key_padding_mask", "padding"),
        ("attn_mask", "pair_mask"),
        ("src_mask", "source_mask"),
        ("past_key_values", "cache"),
        ("use_cache", "use_cache"),
        ("labels", "labels"),
        ("decoder_input_ids", "target"),
        ("encoder_hidden_states", "context"),
        ("start_pos", "start"),
        ("temperature", "other"),
    ],
)
def test_role_of_argument_name(name, role):
    assert role_of(name) == role


def test_parameters_and_required_arguments():
    found = parameters_of(lambda x, mask=None, *rest, **more: x)
    assert [(each.name, each.required) for each in found] == [("x", True), ("mask", False)]
    assert required_arguments(nn.Linear) == ["in_features", "out_features"]


def test_config_of_model():
    model = nn.Identity()
    assert config_of(model) == {}
    model.config = type("Config", (), {"to_dict": lambda self: {"vocab_size": 9}})()
    assert config_of(model) == {"vocab_size": 9}
