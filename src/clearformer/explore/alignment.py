"""Word alignment from cross-attention: the source tokens that each target token attends to.

Axes: H heads, S source tokens, T target tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from clearformer.explore.trace import trace
from clearformer.explore.traced_model import END

if TYPE_CHECKING:
    from clearformer.generate.translate import Translator


def alignment(
    translator: Translator,
    source: Sequence[int],
    target: Sequence[int],
    layer: int | None = None,
    head: int | None = None,
) -> tuple[Tensor, list[str], list[str]]:
    """Weights (T, S) of one layer and head or the mean of all, and labels of rows and columns.

    Row i holds the weights from which target token i was predicted; the last row is the end token.
    """
    config = translator.config
    start_id, _ = translator.generation.require_target_ids(config.name)
    for name, value, limit in (
        ("layer", layer, config.decoder_layers),
        ("head", head, config.heads),
    ):
        if value is not None and not 0 <= value < limit:
            raise ValueError(f"{name} is {value}, but {config.name} has {name}s 0 to {limit - 1}")
    traced = trace(translator, (list(source), [start_id, *target]), ["weights"])
    maps = traced.stacked("weights", "cross")  # (L, H, T, S)
    maps = maps if layer is None else maps[layer : layer + 1]
    weights = maps.mean(dim=(0, 1)) if head is None else maps[:, head].mean(dim=0)
    pieces = translator.tokenizer.pieces
    return weights.cpu(), [*pieces(list(target)), END], [*pieces(list(source[:-1])), END]
