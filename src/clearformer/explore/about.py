"""What there is to know of a model before it is opened: numbers, tasks, a text to begin with."""

from __future__ import annotations

import math
from typing import Any

import torch

from clearformer.config import (
    AnswerSpan,
    AnyModelConfig,
    Classifier,
    Features,
    Head,
    HiddenMemory,
    MaskedToken,
    MultipleChoice,
    NextSentence,
    NextToken,
    Pretraining,
    Seq2SeqConfig,
    TokenClassifier,
)
from clearformer.explore.entries import Entry
from clearformer.explore.safe_text import clean
from clearformer.explore.views import family

POSITIONS = {
    "Learned": "learned",
    "Sinusoidal": "sinusoidal",
    "Rotary": "rotary",
    "RelativeXL": "relative",
    "ALiBi": "alibi",
    "Grid": "grid",
    "NoPosition": "none",
}
SAMPLES = {
    "generate": "The cat sat on the mat",
    "classify": "The film was good, and the end was a surprise",
    "fill": "The cat sat on the mat",
    "translate": "twenty-one",
    "embed": "The cat sat on the mat",
}


def model(entry: Entry) -> dict[str, Any]:
    """One row of the list of models."""
    config = entry.config
    does = tasks(config)
    two = isinstance(config, Seq2SeqConfig)
    head = config.head
    return {
        "id": entry.id,
        "name": entry.name,
        "family": family(config.name),
        "tasks": does,
        "n_layers": config.layers,
        "n_heads": config.heads,
        "n_key_heads": config.key_heads or config.heads,
        "d_model": config.width,
        "d_head": config.resolved_head_width,
        "d_hidden": config.hidden,
        "vocab_size": config.vocabulary,
        "max_len": config.length,
        "positions": POSITIONS[type(config.position).__name__],
        "tokenizer": entry.tokenizer_kind,
        "norm": config.residual,
        "causal": causal(config),
        "parts": ["encoder", "decoder", "cross"] if two else ["self"],
        "labels": _labels(head),
        "memory": config.past.length if isinstance(config.past, HiddenMemory) else None,
        "n_params": sum(math.prod(shape) for _, shape in entry.parameters),
        "checkpoints": entry.checkpoints(),
        "default_checkpoint": entry.default_checkpoint(),
        "sample": SAMPLES[does[0]],
        "sample_target": None,
    }


def _labels(head: Head) -> list[str] | None:
    """What a classifier tells apart, if it says so."""
    names = head.names if isinstance(head, Classifier) else None
    return [clean(name) for name in names] if names else None


def tasks(config: AnyModelConfig) -> list[str]:
    """What the model is for, by its head."""
    if isinstance(config, Seq2SeqConfig):
        return ["translate"]
    match config.head:
        case NextToken():
            return ["generate"]
        case Classifier():
            return ["classify"]
        case MaskedToken() | Pretraining():
            return ["fill"]
        case Features() | TokenClassifier() | AnswerSpan() | NextSentence() | MultipleChoice():
            return ["embed"]


def causal(config: AnyModelConfig) -> bool:
    """Whether no token looks ahead."""
    places = torch.arange(min(config.length, 64))
    tables = [each.allows(places[:, None], places[None, :]) for each in config.patterns]
    return not any(bool(table.triu(1).any()) for table in tables)


def parameters(entry: Entry) -> dict[str, Any]:
    """Every tensor of the model once, and the sum."""
    rows = [
        {"name": name, "shape": list(shape), "count": math.prod(shape)}
        for name, shape in entry.parameters
    ]
    return {"rows": rows, "total": sum(math.prod(shape) for _, shape in entry.parameters)}
