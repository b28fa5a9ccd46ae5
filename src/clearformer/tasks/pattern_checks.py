"""Checks of a model's attention patterns: unlikely values, memory cost, queries without keys."""

from __future__ import annotations

from collections.abc import Sequence

from clearformer.config import (
    AnyModelConfig,
    Both,
    Either,
    Graph,
    Pattern,
    PerHead,
    Shifted,
    strides,
)
from clearformer.kernels.guides import blind_positions

LONG = 2048  # context length from which the memory of attention scores matters


def unlikely_values(patterns: Sequence[Pattern], length: int) -> list[str]:
    """Notes on windows and strides that are longer than the sequence."""
    return [
        f"{describe(each)}: {stride} is longer than the sequence of {length}: a window covers all "
        f"of it, and a stride connects no two positions"
        for each in dict.fromkeys(patterns)
        for stride in dict.fromkeys(strides(each))
        if stride > length
    ]


def memory_notes(model: AnyModelConfig) -> list[str]:
    """Notes on settings that take much more memory than necessary."""
    dropout, length = model.dropout.attention, model.length
    if dropout == 0 or length < LONG or model.kernel == "blockwise":
        return []
    table = 4 * length**2 * model.heads / 1e6
    return [
        f"attention dropout of {dropout:g} at a context of {length} stores the attention scores "
        f"of every head, {table:,.0f} MB for each layer and sequence, several times; the fused "
        f"kernel without dropout stores none: --model.dropout.attention 0"
    ]


def require_visible_keys(patterns: Sequence[Pattern], length: int) -> None:
    """Raise ValueError for a pattern under which some query attends to no key."""
    for each in dict.fromkeys(patterns):
        positions = blind_positions(each, length)
        if positions:
            shown = ", ".join(map(str, positions[:3])) + (", …" if len(positions) > 3 else "")
            plural = len(positions) > 1
            which = f"positions {shown} attend" if plural else f"position {shown} attends"
            raise ValueError(
                f"under {describe(each)} {which} to no key in a sequence of {length}: add Local(1) "
                f"to the pattern, so that each position attends to itself"
            )


def describe(pattern: Pattern) -> str:
    """A pattern as an expression: Causal & Local(128)."""
    match pattern:
        case Both(first=first, second=second):
            return f"{describe(first)} & {describe(second)}"
        case Either(first=first, second=second):
            return f"({describe(first)} | {describe(second)})"
        case Graph(edges=edges, nodes=nodes):
            return f"Graph({len(edges)} edges, {nodes} nodes)"
        case PerHead(patterns=patterns):
            return f"PerHead({', '.join(map(describe, patterns))})"
        case Shifted(pattern=inner, by=by):
            return f"Shifted({describe(inner)}, {by})"
        case _:
            numbers = ", ".join(str(value) for value in vars(pattern).values())
            return f"{type(pattern).__name__}({numbers})" if numbers else type(pattern).__name__
