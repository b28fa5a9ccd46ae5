"""Several adapters over one model in memory, for inference.

A model with an adapter is a copy of the modules that shares every matrix, and adds a narrow
product to those that are adapted. So an adapter costs the memory of its own weights.

Axes: R rows (tokens of a batch), I inputs, O outputs, K rank.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from clearformer.adapters.attach import adapted_layers
from clearformer.adapters.low_rank import LoRALinear
from clearformer.inference.packed_linear import PackedLinear, supports_onednn

M = TypeVar("M", bound=nn.Module)


class SharedLinear(nn.Module):
    """c (x W^T) + s c x A^T B^T + b, with a layer for x W^T + b that others use too.

    c is 1 for LoRA; for DoRA it is m / |W + s B A|.
    """

    def __init__(self, base: nn.Module, layer: LoRALinear, rows: int) -> None:
        super().__init__()
        self.base = base
        self.out_features, self.in_features = layer.out_features, layer.in_features
        a, b = layer.factors()
        c = layer.row_factors()  # (O,)
        self.bias = layer.bias
        self.factor = None if c is None else c.detach()
        self.shift = None if c is None or self.bias is None else (self.bias * (1 - c)).detach()
        b = b * layer.scale if c is None else b * layer.scale * c[:, None]
        self.down, self.up = _linear(a, rows), _linear(b, rows)

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x)  # (..., O)
        if self.factor is not None:
            y = y * self.factor
            y = y if self.shift is None else y + self.shift
        return y + self.up(self.down(x))

    @property
    def weight(self) -> Tensor:
        """The merged matrix, for users of a part of it (cross-attention)."""
        base = cast(Tensor, self.base.weight)
        scaled = base if self.factor is None else base * self.factor[:, None]
        return scaled + cast(Tensor, self.up.weight) @ cast(Tensor, self.down.weight)  # (O, I)


def with_adapter(model: M, adapted: nn.Module, rows: int) -> M:
    """The `model`, which may be packed, with the adapter of `adapted`; products for `rows` rows.

    Modules without children are shared with `model`.
    """
    leaves = {id(each): each for each in model.modules() if not any(True for _ in each.children())}
    combined = copy.deepcopy(model, cast(dict[int, Any], leaves))
    for path, layer in adapted_layers(adapted):
        parent, _, name = path.rpartition(".")
        owner = combined.get_submodule(parent)
        owner.register_module(name, SharedLinear(owner.get_submodule(name), layer, rows))
    return combined


@torch.no_grad()
def _linear(weight: Tensor, rows: int) -> nn.Module:
    outputs, inputs = weight.shape
    linear = nn.Linear(inputs, outputs, bias=False, device="meta")
    linear.weight = nn.Parameter(weight.detach().contiguous(), requires_grad=False)
    # A packed product gives a row the same bits whatever the others are (inference.ragged_decode).
    return PackedLinear(linear, rows) if rows > 1 and supports_onednn(weight) else linear
