"""The explorer's page of a watched module, as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clearformer.explore import arrays, export
from clearformer.explore.limits import MAX_EXPORT_BYTES
from clearformer.explore.token_display import visible

if TYPE_CHECKING:
    from clearformer.interpretability.watch import Watch, WatchedAttention


def page(
    seen: Watch, tokens: Sequence[str] | None, keys: Sequence[str] | None, row: int = 0
) -> str:
    """All attention weights of one sequence of the batch, in the explorer's own page."""
    first = seen.attention[0].weights
    if not isinstance(row, int) or not 0 <= row < len(first):
        raise ValueError(f"row is {row!r}, but the batch has rows 0 to {len(first) - 1}")
    lengths = sorted({size for each in seen.attention for size in each.weights.shape[-2:]})
    for name, words in (("tokens", tokens), ("keys", keys)):
        if words is not None and len(words) not in lengths:
            raise ValueError(
                f"{name} has {len(words)} words, but the attentions are of "
                f"{', '.join(map(str, lengths))} tokens: pass one word for each"
            )
    watched = {
        "name": type(seen.module).__name__,
        "attentions": [_attention(each, row, tokens, keys) for each in seen.attention],
    }
    responses = {
        "GET /api/models": [],
        "GET /api/info": {"limits": {}, "problems": {}},
        "GET /api/watched": watched,
    }
    payload = {"view": "watched", "state": {}, "responses": responses, "only_query": False}
    text = export.document(payload)
    if len(text) > MAX_EXPORT_BYTES:
        raise ValueError(
            f"the page would have {len(text):,} bytes, but the limit is {MAX_EXPORT_BYTES:,}: "
            f"watch a shorter text"
        )
    return text


def _attention(
    found: WatchedAttention, row: int, tokens: Sequence[str] | None, keys: Sequence[str] | None
) -> dict[str, Any]:
    weights = found.weights[min(row, len(found.weights) - 1)]  # (H, Q, K)
    _, queries, count = weights.shape
    return {
        "name": found.name,
        "line": found.line,
        "fused": found.fused,
        "weights": arrays.floats(weights),
        "queries": _axis(queries, tokens, keys),
        "keys": _axis(count, tokens, keys),
    }


def _axis(size: int, *names: Sequence[str] | None) -> list[dict[str, Any]]:
    """The words at the positions, from the names that are as many; else their numbers."""
    fitting = next((each for each in names if each is not None and len(each) == size), None)
    words = [str(i) for i in range(size)] if fitting is None else [visible(str(w)) for w in fitting]
    return [{"i": i, "display": word} for i, word in enumerate(words)]
