"""GPT-2 configs: reading and writing."""

import pytest

from clearformer.config import Dropout, GenerationDefaults, LayerNorm, NextToken
from clearformer.families import gpt2
from clearformer.hub.export_family import NOT_COMPARED, compared_fields
from clearformer.hub.gpt2 import GPT2
from clearformer.hub.hf_config import HFConfig

# As the file of the released model has it.
PUBLISHED = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}


def read(settings):
    return GPT2.read_config(HFConfig(settings, "here"), ())


def test_published_config_equals_preset():
    found, ours = read(PUBLISHED), gpt2("small")
    for name in compared_fields(ours):
        assert getattr(found, name) == getattr(ours, name), name
    assert found.dropout == ours.dropout
    ends = GPT2.read_generation(HFConfig(PUBLISHED, "here"), found)
    assert ends == GenerationDefaults(end_ids=(50_256,))  # of the released vocabulary
    assert "dropout" in NOT_COMPARED


@pytest.mark.parametrize("size", ["small", "medium", "large", "xl"])
def test_config_round_trip(size):
    ours, ends = gpt2(size), GenerationDefaults(end_ids=(7,))
    settings = GPT2.write_config(ours) | GPT2.write_generation(ours, ends)
    found = read(settings)
    assert GPT2.read_generation(HFConfig(settings, "here"), found) == ends
    assert {n: getattr(found, n) for n in compared_fields(ours)} == {
        n: getattr(ours, n) for n in compared_fields(ours)
    }


def test_every_setting_is_read():
    changed = {
        **PUBLISHED,
        "n_inner": 100,
        "activation_function": "gelu",
        "layer_norm_epsilon": 1e-6,
        "attn_pdrop": 0.2,
        "tie_word_embeddings": False,
    }
    found = read(changed)
    assert (found.hidden, found.activation, found.norm) == (100, "gelu", LayerNorm(epsilon=1e-6))
    assert found.dropout == Dropout(embedding=0.1, attention=0.2, residual=0.1)
    assert found.head == NextToken(tied=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale_attn_weights", False),
        ("scale_attn_by_inverse_layer_idx", True),
        ("add_cross_attention", True),
        ("activation_function", "quick_gelu"),
        ("hidden_size", 512),  # a second name of n_embd
        ("is_causal", False),
        ("n_embd", 10**9),
        ("n_layer", 10**9),
        ("vocab_size", 10**12),
    ],
)
def test_rejects_unsupported_settings(name, value):
    with pytest.raises(ValueError, match=name):
        read({**PUBLISHED, name: value})


def test_accepts_alternative_key_names():
    """transformers reads them too, so they stand for n_embd and its like."""
    numbers = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers"}
    renamed = {numbers.get(name, name): value for name, value in PUBLISHED.items()}
    assert read(renamed) == read(PUBLISHED)


def test_accepts_keys_without_numerical_effect():
    for more in ({"reorder_and_upcast_attn": True}, {"is_decoder": True}, {"unknown": 1}):
        assert read({**PUBLISHED, **more}) == read(PUBLISHED)
