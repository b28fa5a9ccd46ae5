"""Tables of tensor names, in both directions."""

import pytest
import torch

from clearformer.builder import outline
from clearformer.config import Classifier, Features, MaskedToken
from clearformer.hub.bert import BERT
from clearformer.hub.gpt2 import GPT2
from clearformer.hub.llama import LLAMA
from clearformer.hub.tensor_names import GATE_UP, QKV, SAME, TRANSPOSED, Rename, their_names


def test_rename_maps_our_names_to_theirs():
    row = Rename("blocks.{}.project.{}", ("layer.{}.q.{}", "layer.{}.k.{}"))
    assert row.match("blocks.11.project.bias") == ("layer.11.q.bias", "layer.11.k.bias")
    assert row.match("blocks.1.2.project.bias") is None
    assert row.match("xblocks.1.project.bias") is None
    with pytest.raises(KeyError, match="the table has no entry for nothing"):
        their_names((row,), "nothing")


@pytest.mark.parametrize("layout", [SAME, TRANSPOSED, QKV, GATE_UP])
def test_split_and_join_round_trip(layout, small):
    config = small("modern", key_heads=2)
    rows = {QKV: 32, GATE_UP: 48}.get(layout, 5)
    ours = torch.randn(rows, 7)
    parts = layout.split(ours, config)
    assert [tuple(part.shape) for part in parts] == layout.shapes((rows, 7), config)
    assert layout.join(parts).equal(ours)
    assert all(part.is_contiguous() for part in parts)


FAMILIES = [
    ("gpt2", GPT2, {}),
    ("bert", BERT, {}),
    ("bert", BERT, {"head": MaskedToken()}),
    ("bert", BERT, {"head": Features(pool="pooler")}),
    ("bert", BERT, {"head": Classifier(classes=3, pool="pooler")}),
    ("modern", LLAMA, {}),
]


@pytest.mark.parametrize(("name", "family", "changes"), FAMILIES)
def test_renamed_parameters_are_unique(name, family, changes, small):
    """Two of ours with one name there would overwrite each other."""
    config = small(name, **changes)
    model = outline(config)
    theirs = [
        each
        for ours, _ in model.named_parameters()
        for each in their_names(family.renames(config), ours)[0]
    ]
    assert len(set(theirs)) == len(theirs)


def test_renames_encoder_and_decoder_stacks():
    rows = (
        Rename("encoder.blocks.{}.attention.output.{}", "encoder.layers.{}.self_attn.out_proj.{}"),
        Rename(
            "decoder.blocks.{}.cross_attention.output.{}",
            "decoder.layers.{}.encoder_attn.out_proj.{}",
        ),
    )
    found, _ = their_names(rows, "decoder.blocks.3.cross_attention.output.bias")
    assert found == ("decoder.layers.3.encoder_attn.out_proj.bias",)
