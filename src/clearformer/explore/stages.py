"""What attention computes between its inputs and its outputs, as named stages.

One set of names for Python, JSON, documents and pages. `of_kernel` is the whole ladder of one
attention; `basic_stages` the same ladder without parameters; `reduced` what is left of the
weights when a whole map would be too much to keep.

Axes: B batch, H heads, Q queries, K keys, D head width, T tokens, E model width.
"""

import math
from collections.abc import Collection, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.core.kernels import one_for_each_query_head, weights
from clearformer.core.masks import Mask
from clearformer.core.patterns import Pattern

# Where each stage is found, in the order of the computation, and its axes.
KERNEL = {
    "q": "H,Tq,D",
    "k": "H,Tk,D",
    "v": "H,Tk,D",
    "scores_raw": "H,Tq,Tk",
    "scores_scaled": "H,Tq,Tk",
    "bias": "H,Tq,Tk",
    "scores_masked": "H,Tq,Tk",
    "weights": "H,Tq,Tk",
    "head_out": "H,Tq,D",
}
PROJECTIONS = {"q_proj": "H,T,D", "k_proj": "H,T,D"}
ATTENTION = {"attn_in": "T,E", "attn_out": "T,E"}
BLOCK = {"resid_pre": "T,E", "resid_mid": "T,E", "resid_post": "T,E"}
FEED_FORWARD = {"mlp_pre": "T,F", "mlp_hidden": "T,F", "mlp_out": "T,E"}
REDUCED = {"thumbs": "H,t,t", "entropy": "H,Tq", "previous": "H", "first": "H"}
OUTPUT = {"logits": "T,V"}
AXES = {**ATTENTION, **PROJECTIONS, **KERNEL, **BLOCK, **FEED_FORWARD, **REDUCED, **OUTPUT}

THUMB = 64  # the longest side of a small picture


def of_kernel(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None
) -> dict[str, Tensor]:
    """Every stage from queries, keys and values to the outputs of the heads: eq. 6 to eq. 9."""
    k, v = one_for_each_query_head(k, q), one_for_each_query_head(v, q)
    found = {"q": q, "k": k, "v": v}
    found["scores_raw"] = q @ k.transpose(-2, -1)  # (B, H, Q, K)  eq. 6
    found["scores_scaled"] = found["scores_raw"] / math.sqrt(q.shape[-1])  # eq. 9
    scores = found["scores_scaled"]
    if bias is not None:
        found["bias"] = bias.expand_as(scores)
        scores = scores + bias
    # A decoder may have more queries than its source has keys, which no table is made for.
    hidden = None if mask.hides_nothing(q.shape[-2]) else ~mask.table(q, k)
    found["scores_masked"] = scores if hidden is None else scores.masked_fill(hidden, -math.inf)
    found["weights"] = weights(q, k, mask, bias)  # eq. 7
    found["head_out"] = found["weights"] @ v  # (B, H, Q, D)  eq. 8
    return found


def basic_stages(x: Tensor, pattern: Pattern) -> dict[str, Tensor]:
    """The same stages of attention without parameters, for vectors (T, E): eq. 1 to eq. 3.

    A vector is its own query, key and value, and nothing is divided by yet.
    """
    raw = x @ x.T  # (T, T)  eq. 1
    seen = pattern.table(len(x), len(x))
    masked = raw.masked_fill(~seen, float("-inf"))
    shares = masked.softmax(dim=-1)  # eq. 2
    return {
        "q": x,
        "k": x,
        "v": x,
        "scores_raw": raw,
        "scores_scaled": raw,
        "scores_masked": masked,
        "weights": shares,
        "head_out": shares @ x,  # (T, E)  eq. 3
    }


def reduced(shares: Tensor, wanted: Collection[str]) -> dict[str, Tensor]:
    """What is kept of weights (B, H, Q, K) where the whole map is not."""
    found = {}
    if "thumbs" in wanted:
        found["thumbs"] = pooled(shares, THUMB)
    if "entropy" in wanted:
        found["entropy"] = entropy(shares)
    queries, keys = shares.shape[-2:]
    if "previous" in wanted:
        # The queries are the last of the keys; the first of all has nothing before it.
        last = torch.arange(max(keys - queries, 0), keys)[:queries]
        rows = torch.arange(len(last))[last > 0]
        before = shares[..., rows, last[last > 0] - 1]  # (B, H, queries with one before)
        found["previous"] = before.mean(-1) if len(rows) else shares.new_zeros(shares.shape[:2])
    if "first" in wanted:
        found["first"] = shares[..., 0].mean(-1)  # (B, H)
    return found


def pooled(table: Tensor, side: int) -> Tensor:
    """A table (B, H, Q, K) of at most `side` by `side`: the largest of each square stays."""
    size = pooling(table.shape[-2], table.shape[-1], side)
    return F.max_pool2d(table, size, ceil_mode=True) if size > 1 else table


def pooling(queries: int, keys: int, side: int) -> int:
    """The side of the squares of which the largest stays."""
    return -(-max(queries, keys) // side)


def entropy(shares: Tensor) -> Tensor:
    """How spread the weights of each query are, in bits: (..., K) -> (...)."""
    return torch.special.entr(shares).sum(-1) / math.log(2)


def all_finite(tensor: Tensor) -> bool:
    """Whether nothing is NaN or infinite, by one sum: NaN and infinities do not vanish in it."""
    return math.isfinite(float(tensor.detach().sum()))


def not_finite(found: Mapping[str, Tensor]) -> dict[str, tuple[int, int]]:
    """Of each stage, how many NaN and how many infinities it has, where it has any.

    A masked score is -inf by design and not counted.
    """
    counts = {}
    for stage, tensor in found.items():
        if all_finite(tensor):
            continue
        infinite = tensor == math.inf if stage == "scores_masked" else tensor.isinf()
        both = int(tensor.isnan().sum()), int(infinite.sum())
        if any(both):
            counts[stage] = both
    return counts
