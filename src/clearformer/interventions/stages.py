"""The stages of a forward pass by name, and attention computed stage by stage.

Python, JSON, the documentation and the page share these names, for reading and for changing.

Axes: B batch, H heads, Q queries, K keys, D head width.
"""

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.kernels import one_for_each_query_head, require_fitting
from clearformer.core.masks import Mask
from clearformer.extensions.layers import RMSNorm

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
# What a norm divides each token by; that of the final norm is recorded with the last layer.
NORMS = {"attn_norm_scale": "T,1", "mlp_norm_scale": "T,1", "final_norm_scale": "T,1"}

Visit = Callable[[str, Tensor], Tensor]  # a stage's name and value to the value to go on with


def unchanged(stage: str, x: Tensor) -> Tensor:
    """The visit that changes nothing."""
    return x


def attention_stages(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    bias: Tensor | None,
    visit: Visit = unchanged,
    dropout: float = 0.0,
) -> dict[str, Tensor]:
    """Every stage from queries, keys and values to the outputs of the heads: eq. 6 to eq. 9."""
    require_fitting(q, k, v, mask, bias)
    k, v = one_for_each_query_head(k, q), one_for_each_query_head(v, q)
    q, k, v = visit("q", q), visit("k", k), visit("v", v)
    tensors = {"q": q, "k": k, "v": v}
    raw = tensors["scores_raw"] = visit("scores_raw", q @ k.transpose(-2, -1))  # (B, H, Q, K) eq. 6
    scores = visit("scores_scaled", raw / math.sqrt(q.shape[-1]))  # eq. 9
    tensors["scores_scaled"] = scores
    if bias is not None:
        tensors["bias"] = visit("bias", bias.to(scores.dtype).expand_as(scores))
        scores = scores + tensors["bias"]
    # Cross-attention may have more queries than keys, for which a mask has no table.
    if not mask.hides_nothing(q.shape[-2]):
        scores = scores.masked_fill(~mask.table(q, k), -math.inf)  # eq. 13
    scores = tensors["scores_masked"] = visit("scores_masked", scores)
    shares = tensors["weights"] = visit("weights", _softmax(scores))  # eq. 7
    tensors["head_out"] = visit("head_out", F.dropout(shares, dropout) @ v)  # (B, H, Q, D)  eq. 8
    return tensors


def _softmax(scores: Tensor) -> Tensor:
    """Rows that sum to 1; a query that sees nothing has zeros, as in `core.kernels.weights`."""
    empty = (scores == -math.inf).all(dim=-1, keepdim=True)
    return scores.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)


def layer_norm_scale(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """sqrt(variance + eps) of each token: (B, T, E) -> (B, T, 1)."""
    return (x.var(dim=-1, keepdim=True, unbiased=False) + norm.eps).sqrt()


def rms_norm_scale(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    """sqrt(mean square + eps) of each token: (B, T, E) -> (B, T, 1)."""
    eps = norm.eps if norm.eps is not None else 1.1920928955078125e-07  # torch's, for float32
    return (x.pow(2).mean(dim=-1, keepdim=True) + eps).sqrt()


# By the class of a norm: those of others are not measured.
NORM_SCALES: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.LayerNorm: layer_norm_scale,
    nn.RMSNorm: rms_norm_scale,
    RMSNorm: rms_norm_scale,
}
