"""Activation checkpointing: what the backward pass computes again instead of keeping.

A block keeps about fifteen times its input for the backward pass. Recomputed, it keeps the
input alone, and its forward pass runs twice: much less memory for about a third more time, and
the same gradient bit for bit, dropout included. It is set on a finished model from outside,
through the values that say how a block and its attention are run; names do not change.
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from clearformer.core.block import Block, DecoderBlock, direct, recompute
from clearformer.core.stack import Stack

Recompute = int | Literal["attention"] | None


def apply(model: nn.Module, what: Recompute) -> None:
    """Run every `what`-th block of each stack twice, or attention alone, or nothing (None)."""
    blocks = (direct,) if not isinstance(what, int) else (recompute, *[direct] * (what - 1))
    attention = recompute if what == "attention" else direct
    for module in model.modules():
        if isinstance(module, Stack):
            module.runs = blocks
        elif isinstance(module, Block | DecoderBlock):
            module.run = attention


def name(what: Recompute) -> str:
    """The value in words."""
    if isinstance(what, int):
        return "every block" if what == 1 else f"every {what}. block"
    return what or "nothing"
