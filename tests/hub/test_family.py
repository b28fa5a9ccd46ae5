"""Canonical tensor names of checkpoint families."""

import pytest

from clearformer.hub.bert import BERT
from clearformer.hub.gpt2 import GPT2
from clearformer.hub.llama import LLAMA


def test_adds_prefix_missing_from_headless_checkpoint():
    found = GPT2.canonical(["wte.weight", "h.0.attn.bias", "h.0.ln_1.weight", "lm_head.weight"])
    assert found == {
        "transformer.wte.weight": "wte.weight",
        "transformer.h.0.ln_1.weight": "h.0.ln_1.weight",
        "lm_head.weight": "lm_head.weight",
    }


def test_keeps_names_that_have_prefix():
    names = ["model.norm.weight", "lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"]
    assert LLAMA.canonical(names) == {name: name for name in names[:2]}


def test_renames_gamma_and_beta():
    found = BERT.canonical(["embeddings.LayerNorm.gamma", "embeddings.LayerNorm.beta"])
    assert set(found) == {"bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.bias"}


def test_rejects_two_names_for_one_tensor():
    with pytest.raises(ValueError, match="are two names for one tensor"):
        BERT.canonical(["bert.x.LayerNorm.gamma", "bert.x.LayerNorm.weight"])
