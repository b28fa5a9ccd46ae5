"""The supported families, by the model_type of a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearformer.hub.bert import BERT
from clearformer.hub.family import Family
from clearformer.hub.gpt2 import GPT2
from clearformer.hub.hf_config import IGNORED_KEYS, NEUTRAL_VALUES
from clearformer.hub.llama import CLASSES, LLAMA
from clearformer.hub.marian import MARIAN

FAMILIES = (GPT2, BERT, LLAMA, MARIAN)
MODEL_TYPES: Mapping[str, Family] = {kind: each for each in FAMILIES for kind in each.model_types}
# Prefixes of the class names in `architectures`.
CLASS_PREFIXES = {"gpt2": "GPT2", "bert": "Bert", "marian": "Marian", **CLASSES}
# Keys by which a config.json without a model_type is recognized.
BERT_KEYS = frozenset(
    """
    attention_probs_dropout_prob hidden_act hidden_dropout_prob hidden_size initializer_range
    intermediate_size max_position_embeddings num_attention_heads num_hidden_layers
    type_vocab_size vocab_size
    """.split()  # noqa: SIM905
)
OPTIONAL_BERT_KEYS = frozenset({"layer_norm_eps", "position_embedding_type", "tie_word_embeddings"})
GPT2_KEYS = frozenset({"n_embd", "n_head", "n_layer", "n_positions"})


def family_of(settings: Mapping[str, Any], where: str) -> Family:
    """The family of a config.json; unsupported ones are refused."""
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise ValueError(
            f"{where} is of a model_type {kind!r:.60}, which clearformer cannot read: known are "
            f"{', '.join(MODEL_TYPES)}"
        )
    if settings.get("quantization_config") is not None:
        raise ValueError(f"{where} has quantized weights: use the original weights")
    if settings.get("auto_map") is not None:
        raise ValueError(
            f"{where} needs its own code (auto_map), but clearformer never runs code from a "
            f"checkpoint: use a model without it"
        )
    return MODEL_TYPES[kind]


def guess_model_type(settings: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Add a missing model_type, and return a note that says what was assumed."""
    if settings.get("model_type") is not None:
        return settings, ()
    named = settings.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    if isinstance(first, str):
        kind = next((k for k, p in CLASS_PREFIXES.items() if _is_class_of(first, p)), None)
        reason = f"by its architecture, {first}"
    else:
        kind, reason = _guess_by_keys(settings), "by its keys"
    if kind is None:
        return settings, ()
    note = f"its config.json has no model_type; it was read as {kind}, {reason}"
    return {**settings, "model_type": kind}, (note,)


def _is_class_of(name: str, prefix: str) -> bool:
    """Whether `name` is a class of the family with this prefix."""
    rest = name.removeprefix(prefix)
    return rest != name and rest.startswith(("For", "Model", "LMHead", "DoubleHeads", "MTModel"))


def _guess_by_keys(settings: Mapping[str, Any]) -> str | None:
    """GPT-2 or BERT, if unambiguous. RoBERTa has BERT's keys, but only one segment."""
    present = {name for name, value in settings.items() if value is not None}
    if present >= GPT2_KEYS:
        return "gpt2"
    known = BERT_KEYS | OPTIONAL_BERT_KEYS | IGNORED_KEYS | set(NEUTRAL_VALUES)
    segments = settings.get("type_vocab_size")
    two = type(segments) is int and segments > 1
    if BERT_KEYS <= present <= known and two and settings.get("pad_token_id", 0) == 0:
        return "bert"
    return None
