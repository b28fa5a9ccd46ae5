"""Facts about a model that need no weights: its sizes, its tasks, a text to start with."""

from __future__ import annotations

import math
from typing import Any

from clearformer.config import AnyModelConfig
from clearformer.explore.model_entry import ModelEntry
from clearformer.explore.safe_text import clean

POSITIONS = {"RelativeXL": "relative", "NoPosition": "none"}  # others: the name in lower case
SAMPLES = {"classify": "The film was good, and the end was a surprise", "translate": "twenty-one"}
DEFAULT_SAMPLE = "The cat sat on the mat"
ELSEWHERE = ("label", "answer", "predict")  # tasks that the page does not show


def main_task(config: AnyModelConfig) -> str:
    """What the page can ask a model first."""
    return next(verb for verb in config.verbs if verb not in ELSEWHERE)


def model_info(entry: ModelEntry) -> dict[str, Any]:
    """One row of the list of models."""
    config = entry.config
    names = config.head.names if "classify" in config.verbs else None
    return {
        "id": entry.id,
        "name": entry.name,
        "family": config.family or config.name,
        "tasks": [main_task(config)],
        "n_layers": config.layers,
        "n_heads": config.heads,
        "n_key_heads": config.key_heads or config.heads,
        "d_model": config.width,
        "d_head": config.resolved_head_width,
        "d_hidden": config.hidden,
        "vocab_size": config.vocabulary,
        "max_len": config.length,
        "longest": config.position.max_length(config.length),
        "positions": position_kind(config),
        "tokenizer": entry.tokenizer_kind,
        "norm": config.residual,
        "causal": is_causal(config),
        "parts": list(config.parts),
        "labels": [clean(name) for name in names] if names else None,
        "memory": config.memory,
        "n_params": parameters(entry)["total"],
        "checkpoints": entry.checkpoints(),
        "default_checkpoint": entry.default_checkpoint(),
        "sample": SAMPLES.get(config.verbs[0], DEFAULT_SAMPLE),
        "sample_target": None,
    }


def position_kind(config: AnyModelConfig) -> str:
    """The kind of the model's positions, as the page names it."""
    name = type(config.position).__name__
    return POSITIONS.get(name, name.lower())


def is_causal(config: AnyModelConfig) -> bool:
    """Whether no token attends to a later one."""
    length = min(config.length, 64)
    tables = [each.table(length, length) for each in config.patterns]
    return not any(bool(table.triu(1).any()) for table in tables)


def parameters(entry: ModelEntry) -> dict[str, Any]:
    """Every parameter tensor of the model once, and the total count."""
    rows = [
        {"name": name, "shape": list(shape), "count": math.prod(shape)}
        for name, shape in entry.parameters
    ]
    return {"rows": rows, "total": sum(math.prod(shape) for _, shape in entry.parameters)}
