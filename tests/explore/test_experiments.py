"""Change a word, shuffle the words."""

import pytest

from clearformer.explore.arrays import unpack
from clearformer.explore.experiments import permute, probe
from clearformer.explore.limits import Limits

FAMILIES = ["generator", "gpt2", "bert", "classifier", "original", "xl", "sparse", "modern"]


@pytest.mark.parametrize("family", ["generator", "gpt2", "xl", "sparse", "modern"])
def test_a_causal_model_does_not_see_what_comes_later(opened, family):
    found = probe(opened(family), "the cat sat", -1, "z", "model", Limits())
    assert found["max_before"] == 0  # exactly
    assert found["max_after"] > 0
    assert unpack(found["delta"])[:-1].max() == 0
    seen = probe(opened(family), "the cat sat", -1, "z", "none", Limits())
    assert seen["max_before"] > 0


def test_an_encoder_sees_everything_unless_it_is_masked(opened):
    model = opened("bert")
    assert probe(model, "the cat sat", 3, "dog", "model", Limits())["max_before"] > 0
    found = probe(model, "the cat sat", 3, "dog", "causal", Limits())
    assert found["max_before"] == 0
    assert found["edited_tokens"][3]["text"] == "dog"


@pytest.mark.parametrize("family", FAMILIES)
def test_without_positions_and_mask_outputs_move_with_the_words(opened, family):
    model = opened(family)
    text = "the cat sat on a mat"
    count = len(probe(model, text, 0, "dog" if family in ("bert", "classifier") else "z", "none",
                      Limits())["tokens"])  # fmt: skip
    order = [*range(1, count), 0]
    off = permute(model, text, order, False, "none", Limits())
    assert off["max_error"] < 1e-5
    on = permute(model, text, order, True, "none", Limits())
    assert on["max_error"] > 1e-3
    assert unpack(off["inputs"]).shape == (count, 16)
