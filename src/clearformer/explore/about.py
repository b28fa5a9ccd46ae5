"""What there is to know of a model before it is opened: numbers, tasks, a text to begin with."""

from __future__ import annotations

import math
from typing import Any

import torch

from clearformer.build import pattern
from clearformer.config import AnyModelConfig
from clearformer.explore.entries import Entry
from clearformer.explore.safe_text import clean

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
    names = config.head.names if "classify" in config.verbs else None
    return {
        "id": entry.id,
        "name": entry.name,
        "family": config.family or config.name,
        "tasks": [config.verbs[0]],
        "n_layers": config.layers,
        "n_heads": config.heads,
        "n_key_heads": config.key_heads or config.heads,
        "d_model": config.width,
        "d_head": config.head_width,
        "d_hidden": config.hidden,
        "vocab_size": config.vocabulary,
        "max_len": config.length,
        "positions": POSITIONS[type(config.position).__name__],
        "tokenizer": entry.tokenizer_kind,
        "norm": config.residual,
        "causal": causal(config),
        "parts": list(config.parts),
        "labels": [clean(name) for name in names] if names else None,
        "memory": config.memory,
        "n_params": sum(math.prod(shape) for _, shape in entry.parameters),
        "checkpoints": entry.checkpoints(),
        "default_checkpoint": entry.default_checkpoint(),
        "sample": SAMPLES[config.verbs[0]],
        "sample_target": None,
    }


def causal(config: AnyModelConfig) -> bool:
    """Whether no token looks ahead."""
    places = torch.arange(min(config.length, 64))
    tables = [pattern(each).allows(places[:, None], places[None, :]) for each in config.patterns]
    return not any(bool(table.triu(1).any()) for table in tables)


def parameters(entry: Entry) -> dict[str, Any]:
    """Every tensor of the model once, and the sum."""
    rows = [
        {"name": name, "shape": list(shape), "count": math.prod(shape)}
        for name, shape in entry.parameters
    ]
    return {"rows": rows, "total": sum(math.prod(shape) for _, shape in entry.parameters)}
