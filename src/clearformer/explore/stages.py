"""Named stages of a forward pass, and how attention computes them.

Python, JSON, the documentation and the page share these names. `attention_stages` computes all
stages of one attention, `basic_stages` those of attention without parameters, and `summaries`
small summaries of weights whose full map would take too much memory.

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

# The stages by module, in the order of the computation, with their axes.
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
SUMMARIES = {"thumbs": "H,t,t", "entropy": "H,Tq", "previous": "H", "first": "H"}
OUTPUT = {"logits": "T,V"}
AXES = {**ATTENTION, **PROJECTIONS, **KERNEL, **BLOCK, **FEED_FORWARD, **SUMMARIES, **OUTPUT}

THUMBNAIL_SIDE = 64  # pixels


def attention_stages(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None
) -> dict[str, Tensor]:
    """Every stage from queries, keys and values to the outputs of the heads: eq. 6 to eq. 9."""
    k, v = one_for_each_query_head(k, q), one_for_each_query_head(v, q)
    tensors = {"q": q, "k": k, "v": v}
    tensors["scores_raw"] = q @ k.transpose(-2, -1)  # (B, H, Q, K)  eq. 6
    scores = tensors["scores_scaled"] = tensors["scores_raw"] / math.sqrt(q.shape[-1])  # eq. 9
    if bias is not None:
        tensors["bias"] = bias.expand_as(scores)
        scores = scores + bias
    # Cross-attention may have more queries than keys, for which a mask has no table.
    hidden = None if mask.hides_nothing(q.shape[-2]) else ~mask.table(q, k)
    tensors["scores_masked"] = scores if hidden is None else scores.masked_fill(hidden, -math.inf)
    tensors["weights"] = weights(q, k, mask, bias)  # eq. 7
    tensors["head_out"] = tensors["weights"] @ v  # (B, H, Q, D)  eq. 8
    return tensors


def basic_stages(x: Tensor, pattern: Pattern) -> dict[str, Tensor]:
    """The stages of attention without parameters, for vectors (T, E): eq. 1 to eq. 3.

    Each vector is its own query, key and value, and the scores are not scaled.
    """
    raw = x @ x.T  # (T, T)  eq. 1
    masked = raw.masked_fill(~pattern.table(len(x), len(x)), -math.inf)
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


def summaries(weights: Tensor, names: Collection[str]) -> dict[str, Tensor]:
    """Summaries of weights (B, H, Q, K): thumbnails, entropy, and attention to two positions."""
    tensors = {}
    if "thumbs" in names:
        tensors["thumbs"] = downscaled(weights, THUMBNAIL_SIDE)
    if "entropy" in names:
        tensors["entropy"] = entropy(weights)
    if "previous" in names:
        tensors["previous"] = _weight_of_previous(weights)
    if "first" in names:
        tensors["first"] = weights[..., 0].mean(-1)  # (B, H)
    return tensors


def _weight_of_previous(weights: Tensor) -> Tensor:
    """The mean weight that queries give to the position before them: (B, H)."""
    queries, keys = weights.shape[-2:]
    # The queries are the last of the keys; the first position has none before it.
    positions = torch.arange(max(keys - queries, 0), keys)[:queries]
    rows = torch.arange(len(positions))[positions > 0]
    if not len(rows):
        return weights.new_zeros(weights.shape[:2])
    return weights[..., rows, positions[positions > 0] - 1].mean(-1)


def downscaled(table: Tensor, side: int) -> Tensor:
    """A table (B, H, Q, K) max-pooled to at most `side` by `side`."""
    size = -(-max(table.shape[-2:]) // side)
    return F.max_pool2d(table, size, ceil_mode=True) if size > 1 else table


def entropy(probabilities: Tensor) -> Tensor:
    """The entropy of distributions in bits: (..., K) -> (...)."""
    return torch.special.entr(probabilities).sum(-1) / math.log(2)


def all_finite(tensor: Tensor) -> bool:
    """Whether a tensor has neither NaN nor infinities: one sum, in which they would persist."""
    return math.isfinite(float(tensor.detach().sum()))


def count_nonfinite(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, int]]:
    """The number of NaN and of infinities in each stage that has any.

    A masked score is -inf by design and not counted.
    """
    counts = {}
    for stage, tensor in tensors.items():
        if all_finite(tensor):
            continue
        infinite = tensor == math.inf if stage == "scores_masked" else tensor.isinf()
        both = int(tensor.isnan().sum()), int(infinite.sum())
        if any(both):
            counts[stage] = both
    return counts
