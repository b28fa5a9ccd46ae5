"""The families that can be read and written, by the model_type of a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearformer.hub.bert import BERT
from clearformer.hub.family import Family
from clearformer.hub.gpt2 import GPT2
from clearformer.hub.hf_config import HARMLESS, NEUTRAL
from clearformer.hub.llama import CLASSES, LLAMA
from clearformer.hub.marian import MARIAN

FAMILIES = (GPT2, BERT, LLAMA, MARIAN)
KINDS: Mapping[str, Family] = {kind: each for each in FAMILIES for kind in each.model_types}
# How the classes of transformers are called, which `architectures` lists.
PREFIXES = {"gpt2": "GPT2", "bert": "Bert", "marian": "Marian", **CLASSES}
# Keys by which a config.json without a model_type is recognized.
BERTS = frozenset(
    """
    attention_probs_dropout_prob hidden_act hidden_dropout_prob hidden_size initializer_range
    intermediate_size max_position_embeddings num_attention_heads num_hidden_layers
    type_vocab_size vocab_size
    """.split()  # noqa: SIM905
)
MORE_OF_BERT = frozenset({"layer_norm_eps", "position_embedding_type", "tie_word_embeddings"})
GPT2S = frozenset({"n_embd", "n_head", "n_layer", "n_positions"})


def family_of(settings: Mapping[str, Any], where: str) -> Family:
    """The family that a config.json speaks of."""
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(
            f"{where} is of a model_type {kind!r:.60}, which clearformer cannot read: known are "
            f"{', '.join(KINDS)}"
        )
    if settings.get("quantization_config") is not None:
        raise ValueError(f"{where} is of quantized weights: take the ones that it was made from")
    if settings.get("auto_map") is not None:
        raise ValueError(f"{where} asks for code of its own (auto_map), and no code is run from it")
    return KINDS[kind]


def with_model_type(settings: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The settings with a model_type where they have none, and what was assumed, in a sentence."""
    if settings.get("model_type") is not None:
        return settings, ()
    named = settings.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    if isinstance(first, str):
        kind = next((k for k, p in PREFIXES.items() if _is_class_of(first, p)), None)
        reason = f"by its architecture, {first}"
    else:
        kind, reason = _by_keys(settings), "by its keys"
    if kind is None:
        return settings, ()
    note = f"its config.json has no model_type; it was read as {kind}, {reason}"
    return {**settings, "model_type": kind}, (note,)


def _is_class_of(name: str, prefix: str) -> bool:
    """Whether transformers has the class `name` in the family whose classes begin so."""
    rest = name.removeprefix(prefix)
    return rest != name and rest.startswith(("For", "Model", "LMHead", "DoubleHeads", "MTModel"))


def _by_keys(settings: Mapping[str, Any]) -> str | None:
    """GPT-2 or BERT, if it can be no other. RoBERTa has BERT's keys, but one kind of segments."""
    found = {name for name, value in settings.items() if value is not None}
    if found >= GPT2S:
        return "gpt2"
    known = BERTS | MORE_OF_BERT | HARMLESS | set(NEUTRAL)
    segments = settings.get("type_vocab_size")
    two = type(segments) is int and segments > 1
    if BERTS <= found <= known and two and settings.get("pad_token_id", 0) == 0:
        return "bert"
    return None
