"""How weights lie in memory and who multiplies them: the same numbers, read faster.

A step of decoding reads every weight once and computes little, so its time is the time of that
reading. Two arrangements for writing (they have no gradients), each a transformation of a
finished model on a CPU; nothing else knows.

`lay_out` suits one text at a time: a matrix lies along its longer side, which is the way that a
product with one vector reads it without jumping. `pack` suits several: the blocks that oneDNN
multiplies lie one after the other.

Axes: B batch, I inputs, O outputs.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SMALL = 2**19  # weights: below that oneDNN's way to a product costs more than it saves

Product = Callable[[Tensor], Tensor]  # (..., I) to (..., O)


class LaidOutLinear(nn.Module):
    """x W^T + b with W along its longer side, multiplied by whoever is faster at it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.out_features, self.in_features = linear.weight.shape
        self.weight = linear.weight  # the very parameter: a table of tokens may share it
        self.bias = linear.bias
        if self.out_features > self.in_features:
            self.weight.data = self.weight.data.t().contiguous().t()

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x.numel() // x.shape[-1])(x)

    def product(self, rows: int) -> Product:
        """The product that is best at so many rows of x, and right for any number."""
        weight, bias = self.weight, self.bias
        if rows == 1 and (self.out_features > self.in_features or weight.numel() < SMALL):
            return lambda x: F.linear(x, weight, bias)
        return lambda x: one_dnn(x, weight, bias)


class PackedLinear(nn.Module):
    """x W^T + b with W in oneDNN's own order, for about `rows` rows of x at a time."""

    def __init__(self, linear: nn.Linear, rows: int) -> None:
        super().__init__()
        self.out_features, self.in_features = linear.weight.shape
        self.bias = linear.bias
        weight = linear.weight.detach().contiguous()
        self.packed: Any = torch.ops.mkldnn._reorder_linear_weight(weight, rows)

    def forward(self, x: Tensor) -> Tensor:
        return one_dnn(x, self.packed, self.bias)  # (..., O)

    @property
    def weight(self) -> Tensor:
        """The matrix as it was, for whoever needs a part of it (cross-attention)."""
        return cast(Tensor, self.packed.to_dense())  # (O, I)


def packed_product(weight: Tensor, bias: Tensor | None, rows: int) -> Product:
    """The product with a packed copy of a matrix, for about `rows` rows of x at a time."""
    packed: Any = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), rows)
    return lambda x: one_dnn(x, packed, bias)


def lay_out(model: nn.Module) -> nn.Module:
    """Let every matrix lie along its longer side, in place; names and values stay."""
    for parent, name, linear in list(_linears(model)):
        parent.register_module(name, LaidOutLinear(linear))
    return model


def pack(model: nn.Module, rows: int) -> nn.Module:
    """Put packed matrices in the place of the model's.

    A matrix that is also a table of tokens stays a tensor: packed, it could not be looked up,
    and a copy would cost memory.
    """
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for parent, name, linear in list(_linears(model)):
        shared = id(linear.weight) in tables
        packed = LaidOutLinear(linear) if shared else PackedLinear(linear, rows)
        parent.register_module(name, packed)
    return model


def by_one_dnn(weight: Tensor) -> bool:
    """Whether oneDNN can multiply by this matrix."""
    known = weight.device.type == "cpu" and weight.dtype == torch.float32
    return known and torch.backends.mkldnn.is_available()


def one_dnn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b: for several rows faster than torch's own product on most CPUs."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def _linears(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """Parent, name and module of every matrix that oneDNN can multiply."""
    for parent in model.modules():
        for name, module in parent.named_children():
            if isinstance(module, nn.Linear) and by_one_dnn(module.weight):
                yield parent, name, module
