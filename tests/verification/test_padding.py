"""Padding masks: name, shape and meaning are inferred by trying."""

import pytest
import torch

from clearformer.verification.padding import PaddingMask, find_mask, padded, real_tokens


@pytest.mark.parametrize(
    ("source", "name", "hide"),
    [
        ("rotary", "attention_mask", False),
        ("encoder", "key_padding_mask", True),
        ("torch_lm", "padding_mask", True),
        ("torch_encoder", "attention_mask", False),
        ("ours_attention", "attention_mask", False),
    ],
)
def test_finds_padding_mask(probe, source, name, hide):
    mask = find_mask(probe(source)).mask
    assert (mask.name, mask.hide, mask.shape) == (name, hide, "BT")


def test_ignores_mask_without_effect(probe):
    found = find_mask(probe("encoder", "if key_padding_mask is not None:", "if False:"))
    assert found.mask is None
    assert found.tried.name == "key_padding_mask"
    assert not found.matters


def test_mask_arguments_have_shape_and_positions():
    real = real_tokens(2, 4, 2, left=True)
    mask = PaddingMask("m", "B11T", hide=True, positions="position_ids")
    made = mask.arguments(real)
    assert made["m"].shape == (2, 1, 1, 4)
    assert made["position_ids"].tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]


def test_fillings_differ_only_in_padding(probe):
    made = probe("encoder")
    (one, real), (two, _) = padded(made, 2, False, 0), padded(made, 2, False, 1)
    assert bool((one.stream == two.stream)[real].all())
    assert not bool((one.stream == two.stream)[~real].all())
    assert real.dtype is torch.bool
