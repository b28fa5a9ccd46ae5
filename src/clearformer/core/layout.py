"""How weights lie in memory: the same numbers, read faster.

A step of decoding reads every weight once and computes little, so its time is the time of that
reading. Two arrangements, each a transformation of a finished model; nothing else knows.

`lay_out` suits one text at a time: a matrix lies along its longer side, which is the way that a
product with one vector reads it without jumping. `pack` suits several: the blocks that oneDNN
multiplies lie one after the other.

Axes: B batch, I inputs, O outputs.
"""

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn


def lay_out(model: nn.Module) -> nn.Module:
    """Let every matrix lie along its longer side, in place; views, names and values stay."""
    for _, _, linear in _linears(model):
        outputs, inputs = linear.weight.shape
        if outputs > inputs:
            linear.weight.data = linear.weight.data.t().contiguous().t()
    return model


class PackedLinear(nn.Module):
    """x W^T + b with W in oneDNN's own order, for about `rows` rows of x at a time."""

    def __init__(self, linear: nn.Linear, rows: int) -> None:
        super().__init__()
        self.out_features, self.in_features = linear.weight.shape
        self.bias = linear.bias
        weight = linear.weight.detach().contiguous()
        self.packed: Any = torch.ops.mkldnn._reorder_linear_weight(weight, rows)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return y  # (..., O)

    @property
    def weight(self) -> Tensor:
        """The matrix as it was, for whoever needs a part of it (cross-attention)."""
        return cast(Tensor, self.packed.to_dense())  # (O, I)


def pack(model: nn.Module, rows: int) -> nn.Module:
    """Put packed matrices in the place of the model's, in place, where torch has oneDNN.

    A matrix that is also a table of tokens stays as it is: packed, it could not be looked up,
    and a copy would cost memory.
    """
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for parent, name, linear in list(_linears(model)):
        plain = linear.weight.device.type == "cpu" and linear.weight.dtype == torch.float32
        if plain and id(linear.weight) not in tables and torch.backends.mkldnn.is_available():
            parent.register_module(name, PackedLinear(linear, rows))
    return model


def _linears(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """Parent, name and module of every matrix."""
    for parent in model.modules():
        for name, module in parent.named_children():
            if isinstance(module, nn.Linear):
                yield parent, name, module
