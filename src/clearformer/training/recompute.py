"""Activation checkpointing: blocks that the backward pass computes again.

A block keeps about fifteen times its input for the backward pass. Recomputed, it keeps its input
alone and runs its forward pass twice: much less memory for about a third more time, and the same
gradient bit for bit, dropout included. It is set on a finished model; names do not change.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from clearformer.core.block import Block, DecoderBlock, direct
from clearformer.core.stack import Stack

Recompute = int | Literal["attention"] | None


def recompute(part: nn.Module, *arguments: object) -> Tensor:
    """Keep only the part's input and compute the rest again for the backward pass."""
    return checkpoint(part, *arguments, use_reentrant=False)


def apply(model: nn.Module, setting: Recompute) -> None:
    """Recompute every `setting`-th block of each stack, or attention alone, or nothing (None)."""
    blocks = (direct,) if not isinstance(setting, int) else (recompute, *[direct] * (setting - 1))
    attention = recompute if setting == "attention" else direct
    for module in model.modules():
        if isinstance(module, Stack):
            module.runs = blocks
        elif isinstance(module, Block | DecoderBlock):
            module.run = attention


def describe(setting: Recompute) -> str:
    """A setting in words."""
    if isinstance(setting, int):
        return "every block" if setting == 1 else f"every {setting}. block"
    return setting or "nothing"
