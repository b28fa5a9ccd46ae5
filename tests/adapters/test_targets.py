import pytest
from torch import nn

from clearformer.adapters.targets import feed_forward_rows, slots
from clearformer.builder import outline


def test_matrices_of_a_gated_model_with_few_key_heads(small):
    found = {slot.path: slot.rows for slot in slots(outline(small("modern", key_heads=1)))}
    rows = found["stack.blocks.0.attention.project"]
    assert [len(rows[name]) for name in ("q", "k", "v", "qkv")] == [
        (config := small("modern", key_heads=1)).width,
        config.width // config.heads,
        config.width // config.heads,
        config.width + 2 * config.width // config.heads,
    ]
    assert list(found["stack.blocks.0.feed_forward.up"]) == ["gate", "up"]


@pytest.mark.parametrize("family", ["gpt2", "bert", "xl"])
def test_other_families_have_plain_layers(small, family):
    names = [(slot.name, list(slot.rows)) for slot in slots(outline(small(family)))][:4]
    assert names == [
        ("project", ["q", "k", "v", "qkv"]), ("output", ["o"]), ("up", ["up"]), ("down", ["down"]),
    ]  # fmt: skip


def test_an_encoder_decoder_has_cross_attention_too(small):
    paths = [slot.path for slot in slots(outline(small("original")))]
    assert "decoder.blocks.0.cross_attention.project" in paths
    assert "encoder.blocks.0.attention.output" in paths


def test_attention_without_an_output_matrix_has_none(small):
    names = [slot.name for slot in slots(outline(small("gpt2", attention_output="none")))]
    assert "output" not in names


def test_parts_by_name(small):
    project = next(slots(outline(small("gpt2"))))
    assert list(project.parts("all")) == ["q", "k", "v"]
    assert list(project.parts("v,down,q")) == ["q", "v"]
    assert not project.parts("down")


def test_a_feed_forward_layer_of_ones_own_has_no_parts():
    assert feed_forward_rows(nn.Linear(2, 2)) == {}
