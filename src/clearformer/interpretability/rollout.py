"""Attention rollout (Abnar and Zuidema, 2020): attention multiplied through the layers.

Axes: N layers, H heads, T tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clearformer.arguments import require_number
from clearformer.explore.trace import Trace


def attention_rollout(trace: Trace, part: str | None = None, *, residual: float = 0.5) -> Tensor:
    """How much each token of each layer comes from each input token.

    In every layer the heads are averaged and mixed with the identity, which stands for the
    residual connection; the layers are multiplied.

    Args:
        trace (Trace): A trace with ``weights``.
        part (str, optional): Of a translator ``"encoder"`` or ``"decoder"``.
        residual (float): The share of the identity. Default: 0.5.

    Returns:
        Tensor: (N, T, T); row i of the last layer sums to 1 over the input tokens.
    """
    require_number("residual", residual, 0, 1)
    weights = trace.stacked("weights", part or trace.parts[0]).mean(1)  # (N, T, T)
    if weights.shape[-2] != weights.shape[-1]:
        raise ValueError("rollout needs as many queries as keys: choose a part without a source")
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    mixed = residual * identity + (1 - residual) * weights
    mixed = mixed / mixed.sum(-1, keepdim=True)  # an empty row has only the identity
    layers = [mixed[0]]
    for each in mixed[1:]:
        layers.append(each @ layers[-1])
    return torch.stack(layers)
