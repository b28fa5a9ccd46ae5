"""Which source tokens a target token looked at: cross-attention as an alignment.

Axes: H heads, S source tokens, T target tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearformer.explore.subject import END
from clearformer.explore.trace import trace

if TYPE_CHECKING:
    from clearformer.generate.translate import Translator


def alignment(
    translator: Translator,
    source: Sequence[int],
    target: Sequence[int],
    layer: int | None = None,
    head: int | None = None,
) -> tuple[Tensor, list[str], list[str]]:
    """Weights (T, S) of one layer and head or the mean of all, and names of rows and columns.

    Row i is where the model looked when it chose target token i; the last row is the end mark.
    """
    config, marks = translator.config, translator.config.marks
    assert marks is not None
    for name, value, limit in (
        ("layer", layer, config.decoder_layers),
        ("head", head, config.heads),
    ):
        if value is not None and not 0 <= value < limit:
            raise ValueError(f"{name} is {value}, but {config.name} has {name}s 0 to {limit - 1}")
    found = trace(translator, (list(source), [marks.start, *target]), ["weights"])
    layers = range(config.decoder_layers) if layer is None else [layer]
    maps = torch.stack([found.recorded["cross", i]["weights"][0] for i in layers])  # (N, H, T, S)
    weights = maps.mean(dim=(0, 1)) if head is None else maps[:, head].mean(dim=0)
    pieces = translator.tokenizer.pieces
    return weights.cpu(), [*pieces(list(target)), END], [*pieces(list(source[:-1])), END]
