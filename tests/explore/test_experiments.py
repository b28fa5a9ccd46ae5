"""Experiments: replacing and shuffling words."""

import pytest

from clearformer.explore import experiments
from clearformer.explore.arrays import unpack
from clearformer.explore.limits import Limits
from clearformer.explore.requests import PermuteRequest, ProbeRequest

FAMILIES = ["generator", "gpt2", "bert", "classifier", "original", "xl", "sparse", "modern"]


def probe(model, text, i, new, mask):
    edit = {"i": i, "text": new}
    request = ProbeRequest(model=model.entry.id, text=text, edit=edit, mask=mask)
    return experiments.probe(model, request, Limits())


def permute(model, text, order, positions, mask):
    request = PermuteRequest(
        model=model.entry.id, text=text, permutation=order, positions=positions, mask=mask
    )
    return experiments.permute(model, request, Limits())


@pytest.mark.parametrize("family", ["generator", "gpt2", "xl", "sparse", "modern"])
def test_causal_model_ignores_later_tokens(loaded, family):
    found = probe(loaded(family), "the cat sat", -1, "z", "model")
    assert found["max_before"] == 0  # exactly
    assert found["max_after"] > 0
    assert unpack(found["delta"])[:-1].max() == 0
    seen = probe(loaded(family), "the cat sat", -1, "z", "none")
    assert seen["max_before"] > 0


def test_encoder_sees_everything_unless_masked(loaded):
    model = loaded("bert")
    assert probe(model, "the cat sat", 3, "dog", "model")["max_before"] > 0
    found = probe(model, "the cat sat", 3, "dog", "causal")
    assert found["max_before"] == 0
    assert found["edited_tokens"][3]["text"] == "dog"


@pytest.mark.parametrize("family", FAMILIES)
def test_without_positions_and_mask_outputs_are_permuted(loaded, family):
    model = loaded(family)
    text = "the cat sat on a mat"
    new = "dog" if family in ("bert", "classifier") else "z"
    count = len(probe(model, text, 0, new, "none")["tokens"])
    order = [*range(1, count), 0]
    off = permute(model, text, order, False, "none")
    assert off["max_error"] < 1e-5
    on = permute(model, text, order, True, "none")
    assert on["max_error"] > 1e-3
    assert unpack(off["inputs"]).shape == (count, 16)
