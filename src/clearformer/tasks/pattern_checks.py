"""What is said of a model's patterns before it is used: what is odd, what cannot be meant."""

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

LONG = 2048  # tokens from which a table of scores is worth a word


def remarks(patterns: Sequence[Pattern], length: int) -> list[str]:
    """Numbers that are allowed, but may not be meant."""
    return [
        f"{name(each)}: {stride} is longer than the sequence of {length}: a window then covers all "
        f"of it, and a stride joins no two positions"
        for each in dict.fromkeys(patterns)
        for stride in dict.fromkeys(strides(each))
        if stride > length
    ]


def costs(model: AnyModelConfig) -> list[str]:
    """What takes much more memory than it need."""
    dropout, length = model.dropout.attention, model.length
    if dropout == 0 or length < LONG or model.kernel == "blockwise":
        return []
    table = 4 * length**2 * model.heads / 1e6
    return [
        f"attention dropout of {dropout:g} at a context of {length} keeps the table of scores of "
        f"every head, {table:,.0f} MB for each layer and sequence, several times; without it the "
        f"fused kernel keeps none: --model.dropout.attention 0"
    ]


def require_sight(patterns: Sequence[Pattern], length: int) -> None:
    """Refuse a pattern under which some output sees nothing."""
    for each in dict.fromkeys(patterns):
        positions = blind_positions(each, length)
        if positions:
            shown = ", ".join(map(str, positions[:3])) + (", …" if len(positions) > 3 else "")
            which = f"position {shown} sees" if len(positions) == 1 else f"positions {shown} see"
            raise ValueError(
                f"under {name(each)} {which} nothing in a sequence of {length}, not even itself: "
                f"add Local(1) to the pattern, so that everyone sees itself"
            )


def name(pattern: Pattern) -> str:
    """A pattern as it is written: Causal & Local(128)."""
    match pattern:
        case Both(first=first, second=second):
            return f"{name(first)} & {name(second)}"
        case Either(first=first, second=second):
            return f"({name(first)} | {name(second)})"
        case Graph(edges=edges, nodes=nodes):
            return f"Graph({len(edges)} edges, {nodes} nodes)"
        case PerHead(patterns=several):
            return f"PerHead({', '.join(map(name, several))})"
        case Shifted(pattern=inner, by=by):
            return f"Shifted({name(inner)}, {by})"
        case _:
            numbers = ", ".join(str(value) for value in vars(pattern).values())
            return f"{type(pattern).__name__}({numbers})" if numbers else type(pattern).__name__
