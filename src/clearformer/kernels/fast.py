"""Fast kernel for training on a CPU: the same function as `core.kernels.fused`.

torch has no fused CPU kernel for a bias that needs a gradient, and a slow one for short sequences
in bfloat16. In these cases attention is computed with explicit scores by three matrix products.

Axes: B batch, H heads, Q queries, K keys, D head width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.core.kernels import fused, require_fitting
from clearformer.core.masks import Mask


def fast(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, dropout: float
) -> Tensor:
    """`three_products` if it is faster, else `fused`; the default kernel of a built model."""
    if q.requires_grad and q.device.type == "cpu":
        require_fitting(q, k, v, mask, bias)
        if _three_products_are_faster(q, k, bias, dropout):
            return three_products(q, k, v, mask, bias, dropout)
    return fused(q, k, v, mask, bias, dropout)


def _three_products_are_faster(q: Tensor, k: Tensor, bias: Tensor | None, dropout: float) -> bool:
    """Where torch has no fused CPU kernel with a backward pass, or a slow one."""
    if q.shape[1] != k.shape[1]:
        return False
    if bias is not None:
        # torch's fused kernel has no gradient for a bias, and its fallback copies the scores a
        # dozen times (docs/log.md).
        return bias.requires_grad
    # torch's fused kernel takes 2 to 8 times as long as three products (docs/log.md); it does not
    # support dropout, and its fallback takes twice as long at any length.
    short = k.shape[-2] <= (512 if k.shape[-1] >= 64 else 256)
    return q.dtype == torch.bfloat16 and (short or dropout > 0)


def three_products(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, dropout: float
) -> Tensor:
    """Attention with explicit scores; mask and bias are added within the first product."""
    shape = (*q.shape[:3], k.shape[-2])  # (B, H, Q, K)
    keys, values = k.flatten(0, 1).transpose(1, 2), v.flatten(0, 1)  # (B*H, D, K), (B*H, K, D)
    visible = None if mask.hides_nothing(q.shape[-2]) else mask.table(q, k)  # broadcasts to whole
    # Added instead of filled in: this needs no backward pass.
    added = q.new_zeros(1) if visible is None else _minus_infinity(~visible, q)
    if bias is not None:
        added = added + bias.to(q.dtype)
    # A row without any visible key would be NaN: it gets equal weights, and is set to zero at the
    # end. It is changed without autograd: a sum saves nothing for its backward pass, and the
    # gradient of such a row is zero.
    empty = added.detach().amax(dim=-1, keepdim=True) == -math.inf
    added.detach().masked_fill_(empty, 0.0)
    scores = torch.baddbmm(
        added.expand(shape).flatten(0, 1),
        q.flatten(0, 1),
        keys,
        beta=0 if bias is None and visible is None else 1,  # 0: `added` is not even read
        alpha=1 / math.sqrt(q.shape[-1]),
    )  # (B*H, Q, K)
    y = (F.dropout(scores.softmax(dim=-1), dropout) @ values).view_as(q)  # (B, H, Q, D)
    return y if bias is None and visible is None else y * ~empty


def _minus_infinity(hidden: Tensor, like: Tensor) -> Tensor:
    return like.new_zeros(hidden.shape).masked_fill_(hidden, -math.inf)
