"""Llama, Mistral and Qwen configs: reading and writing."""

import pytest
import torch

from clearformer.config import (
    Biases,
    Causal,
    GenerationDefaults,
    LinearScaling,
    Llama3Scaling,
    Local,
    NextToken,
    RMSNorm,
    Rotary,
)
from clearformer.hub.export_family import compared_fields
from clearformer.hub.hf_config import HFConfig
from clearformer.hub.llama import LLAMA, in_halves

SETTINGS = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 500_000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.0",
    "use_cache": True,
    "vocab_size": 300,
}


def read(**changes):
    return LLAMA.read_config(HFConfig({**SETTINGS, **changes}, "here"), ())


def test_reads_classic_llama_config():
    found = read()
    assert found.position == Rotary(base=500_000.0)
    assert found.norm == RMSNorm(epsilon=1e-5)
    head = NextToken(tied=True)
    assert (found.key_heads, found.head, found.query_key_norm) == (2, head, None)
    assert found.biases == Biases(attention=False, attention_output=False, feed_forward=False)
    ends = LLAMA.read_generation(HFConfig(SETTINGS, "here"), found)
    assert ends == GenerationDefaults(end_ids=(2,))


def test_reads_rope_parameters():
    new = {"rope_type": "default", "rope_theta": 700.0}
    assert read(rope_theta=None, rope_parameters=new).position == Rotary(base=700.0)


def test_reads_rope_scaling():
    """As in Llama 3.2's file, and as older ones have it."""
    given = {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    }
    scaling = Llama3Scaling(factor=32.0, low=1.0, high=4.0, length=8192)
    assert read(rope_scaling=given).position == Rotary(base=500_000.0, scaling=scaling)
    older = read(rope_scaling={"type": "linear", "factor": 2.0}).position
    assert older == Rotary(base=500_000.0, scaling=LinearScaling(factor=2.0))
    with pytest.raises(ValueError, match="rope_scaling: rope_type is 'yarn', but clearformer"):
        read(rope_scaling={**given, "rope_type": "yarn"})


def test_reads_qwen_and_mistral_configs():
    assert read(model_type="qwen3").query_key_norm == RMSNorm(epsilon=1e-5)
    assert read(model_type="qwen3").head_width == 128  # the default of transformers
    assert read(model_type="qwen2").biases.attention
    assert not read(model_type="qwen2").biases.attention_output
    windowed = (Causal() & Local(window=16),)
    assert read(model_type="mistral", sliding_window=16).patterns == windowed
    assert read(model_type="mistral", sliding_window=4096).patterns == (Causal(),)


FAR, TOLERANCE = Causal(), Causal() & Local(window=16)
TYPES = ["sliding_attention", "full_attention"]


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("settings", "patterns"),
    [
        ({}, (FAR,)),
        ({"use_sliding_window": False}, (FAR,)),
        ({"use_sliding_window": True}, (FAR,)),  # from layer 28 on
        ({"use_sliding_window": True, "max_window_layers": 1}, (FAR, TOLERANCE)),
        ({"use_sliding_window": True, "max_window_layers": 0}, (TOLERANCE,)),
        ({"use_sliding_window": True, "layer_types": TYPES}, (TOLERANCE, FAR)),
    ],
)
def test_sliding_window_applies_to_configured_layers(kind, settings, patterns):
    """As transformers reads them, where a file is silent too."""
    assert read(model_type=kind, sliding_window=16, **settings).patterns == patterns


def test_default_sliding_window_of_mistral():
    long = {"model_type": "mistral", "max_position_embeddings": 8192}
    assert read(**long).patterns == (Causal() & Local(window=4096),)
    assert read(**long, sliding_window=None).patterns == (FAR,)


def test_rejects_contradicting_rope_settings():
    linear = {"rope_type": "linear", "factor": 4.0}
    both = {"rope_parameters": {"rope_type": "default"}, "rope_scaling": linear}
    with pytest.raises(ValueError, match=r"rope_scaling is .* rope_parameters says something else"):
        read(**both)
    assert read(**{**both, "rope_parameters": linear}).position.scaling == LinearScaling(factor=4.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rope_scaling", {"rope_type": "llama3", "factor": 8.0}),
        ("rope_scaling", {"type": "linear"}),
        ("rope_scaling", {"type": "yarn", "factor": 2.0}),
        ("rope_scaling", {"rope_type": "dynamic", "factor": 2.0}),
        ("rope_parameters", {"rope_type": "default", "rope_theta": 1e4, "factor": 2.0}),
        ("rope_parameters", "yarn"),
        ("partial_rotary_factor", 0.5),
        ("head_dim", 0),
        ("hidden_act", "gelu"),
        ("is_causal", False),
        ("attention_chunk_size", 16),
        ("layer_types", ["sliding_attention", "full_attention"]),
        ("sliding_window", 16),
        ("use_sliding_window", True),
        ("num_key_value_heads", 8),
    ],
)
def test_rejects_unsupported_settings(name, value):
    with pytest.raises(ValueError, match=name):
        read(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sliding_window", -3),
        ("max_window_layers", -1),
        ("layer_types", ["sliding_attention"]),
        ("layer_types", ["sliding_attention", "chunked"]),
    ],
)
def test_rejects_invalid_sliding_window_settings(name, value):
    settings = {"use_sliding_window": True, "sliding_window": 16, name: value}
    with pytest.raises(ValueError, match=name):
        read(model_type="qwen2", **settings)


CHANGES = [
    {},
    {"query_key_norm": None},
    {"query_key_norm": None, "biases": Biases(attention_output=False, feed_forward=False)},
    {"query_key_norm": None, "biases": Biases()},
    {"query_key_norm": None, "patterns": (Causal() & Local(window=5),)},
    {"patterns": (Causal() & Local(window=5),)},
    {"patterns": (Causal(), Causal() & Local(window=5))},
    {"head": NextToken(tied=False)},
    {"head": NextToken(tied=True), "position": Rotary(base=300.0)},
    {"position": Rotary(scaling=LinearScaling(factor=3.0))},
    {"position": Rotary(scaling=Llama3Scaling(factor=8.0, low=1.0, high=4.0, length=64))},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_config_round_trip(changes, small):
    ours = small("modern", **changes)
    found = LLAMA.read_config(HFConfig(LLAMA.write_config(ours), "here"), ())
    for name in compared_fields(ours):
        assert getattr(found, name) == getattr(ours, name), name


def test_in_halves_leaves_halves_order_unchanged(small):
    config = small("modern")
    tensors = {"x": torch.ones(1)}
    assert in_halves(config, tensors) == (config, tensors)
    gpt2 = small("gpt2")
    assert in_halves(gpt2, tensors) == (gpt2, tensors)


def test_attention_bias_applies_only_to_llama_and_qwen3():
    """Mistral and Qwen2 do not read the key that Llama and Qwen3 have for it."""
    assert read(attention_bias=True).biases.attention_output
    assert read(model_type="qwen3", attention_bias=True).biases.attention_output
    for kind in ("mistral", "qwen2"):
        found = read(model_type=kind, attention_bias=True, mlp_bias=True).biases
        assert (found.attention_output, found.feed_forward) == (False, False)


def test_layer_types_must_agree_with_sliding_window():
    windowed = {"model_type": "mistral", "sliding_window": 16}
    types = ["sliding_attention"] * read().layers
    assert read(**windowed, layer_types=types).patterns == read(**windowed).patterns
    with pytest.raises(ValueError, match="a mistral has one kind of attention in all"):
        read(**windowed, layer_types=["full_attention"] * read().layers)
