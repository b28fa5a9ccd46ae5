"""Several adapters over one model in memory, for inference.

A model with an adapter is a copy of the modules that shares every matrix, and adds a narrow
product to those that are adapted. So an adapter costs the memory of its own weights.

Axes: R rows (tokens of a batch), I inputs, O outputs, K rank.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar, cast

from torch import Tensor, nn

from clearformer.adapters.attach import adapted_layers
from clearformer.adapters.frozen import plain_linear
from clearformer.adapters.low_rank import LoRALinear

M = TypeVar("M", bound=nn.Module)


class SharedLinear(nn.Module):
    """c (x W^T) + s c x A^T B^T + b, with a layer for x W^T + b that others use too.

    c is 1 for LoRA; for DoRA it is m / |W + s B A|.
    """

    def __init__(self, base: nn.Module, layer: LoRALinear) -> None:
        super().__init__()
        self.base = base
        self.out_features, self.in_features = layer.out_features, layer.in_features
        a, b = layer.factors()
        c = layer.row_factors()  # (O,)
        self.bias = layer.bias
        self.factor = None if c is None else c.detach()
        self.shift = None if c is None or self.bias is None else (self.bias * (1 - c)).detach()
        b = b * layer.scale if c is None else b * layer.scale * c[:, None]
        self.down, self.up = (plain_linear(each.detach(), None) for each in (a, b))

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
        return scaled + self.up.weight @ self.down.weight  # (O, I)


def with_adapter(model: M, adapted: nn.Module) -> M:
    """The `model`, which may be packed, with the adapter of `adapted`.

    Modules without children are shared with `model`.
    """
    leaves = {id(each): each for each in model.modules() if not any(True for _ in each.children())}
    combined = copy.deepcopy(model, cast(dict[int, Any], leaves))
    for path, layer in adapted_layers(adapted):
        parent, _, name = path.rpartition(".")
        owner = combined.get_submodule(parent)
        owner.register_module(name, SharedLinear(owner.get_submodule(name), layer))
    return combined
