"""The named stages of a forward pass (`interventions.stages`), and summaries of them.

`basic_stages` computes the stages of attention without parameters, and `summaries` small
summaries of weights whose full map would take too much memory.

Axes: B batch, H heads, Q queries, K keys, D head width, T tokens, E model width.
"""

import math
from collections.abc import Collection, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.core.patterns import Pattern
from clearformer.interventions.stages import (
    ATTENTION,
    BLOCK,
    FEED_FORWARD,
    KERNEL,
    NORMS,
    PROJECTIONS,
    attention_stages,
)

__all__ = [
    "AXES",
    "KERNEL",
    "OUTPUT",
    "SUMMARIES",
    "THUMBNAIL_SIDE",
    "all_finite",
    "attention_stages",
    "basic_stages",
    "count_nonfinite",
    "downscaled",
    "entropy",
    "summaries",
]

SUMMARIES = {"thumbs": "H,t,t", "entropy": "H,Tq", "previous": "H", "first": "H"}
OUTPUT = {"logits": "T,V"}
AXES = {
    **ATTENTION,
    **PROJECTIONS,
    **KERNEL,
    **BLOCK,
    **FEED_FORWARD,
    **NORMS,
    **SUMMARIES,
    **OUTPUT,
}

THUMBNAIL_SIDE = 64  # pixels


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
