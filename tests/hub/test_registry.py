"""Selecting the family of a config.json."""

import pytest

from clearformer.hub.gpt2 import GPT2
from clearformer.hub.registry import MODEL_TYPES, family_of, guess_model_type

BERT = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
    "max_position_embeddings": 512, "num_attention_heads": 12, "num_hidden_layers": 12,
    "type_vocab_size": 2, "vocab_size": 30522,
}  # fmt: skip
GPT = {"n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}


def test_families_by_model_type():
    assert family_of({"model_type": "gpt2"}, "here") is GPT2
    assert set(MODEL_TYPES) == {"gpt2", "bert", "llama", "mistral", "qwen2", "qwen3", "marian"}


@pytest.mark.parametrize("kind", ["t5", None, 3, "bret", "roberta", "gpt_neo"])
def test_rejects_unknown_model_type_listing_known_ones(kind):
    """No similar name is suggested: RoBERTa is not a BERT."""
    with pytest.raises(
        ValueError,
        match=f"here is of a model_type {kind!r}, which clearformer cannot read: known are "
        f"gpt2, bert, llama, mistral, qwen2, qwen3, marian$",
    ):
        family_of({"model_type": kind}, "here")


def test_rejects_custom_code_and_quantized_weights():
    with pytest.raises(ValueError, match="needs its own code"):
        family_of({"model_type": "gpt2", "auto_map": {"AutoModel": "x.py"}}, "here")
    with pytest.raises(ValueError, match="has quantized weights"):
        family_of({"model_type": "llama", "quantization_config": {"bits": 4}}, "here")


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"architectures": ["BertForMaskedLM"]}, "bert"),
        ({"architectures": ["GPT2LMHeadModel"]}, "gpt2"),
        ({"architectures": ["LlamaForCausalLM"]}, "llama"),
        ({"architectures": ["Qwen2ForSequenceClassification"]}, "qwen2"),
        ({"architectures": ["Qwen3Model"]}, "qwen3"),
        ({"architectures": ["MarianMTModel"]}, "marian"),
        (BERT, "bert"),  # as the files of 2018 are
        (GPT, "gpt2"),
    ],
)
def test_guesses_model_type_from_keys(settings, kind):
    found, notes = guess_model_type(settings)
    assert found == {**settings, "model_type": kind}
    assert notes[0].startswith(f"its config.json has no model_type; it was read as {kind}, by its ")
    given = {**settings, "model_type": "t5"}
    assert guess_model_type(given) == (given, ())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"architectures": ["RobertaForMaskedLM"]},
        {"architectures": ["BertGenerationEncoder"]},
        {"architectures": ["Qwen2MoeForCausalLM"]},
        {"architectures": [3]},
        {**BERT, "type_vocab_size": 1},  # RoBERTa
        {**BERT, "pad_token_id": 1},
        {**BERT, "embedding_size": 128},  # ELECTRA, ALBERT
        {**BERT, "architectures": ["AlbertModel"]},
    ],
)
def test_does_not_guess_ambiguous_model_type(settings):
    assert guess_model_type(settings) == (settings, ())
