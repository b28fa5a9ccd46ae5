"""Who multiplies by a matrix, and how it lies in memory: the same numbers, read faster.

A step of decoding reads every weight once and computes little, so its time is the time of that
reading. Two arrangements for writing (they have no gradients), each a transformation of a
finished model on a CPU; nothing else knows.

`quicken` suits one text at a time: a product with one vector is cut into pieces that all threads
share, which reads a matrix as fast as memory gives it. `pack` suits several texts: the blocks
that oneDNN multiplies lie one after the other. Both put what stays a tensor in large pages.

Axes: B batch, I inputs, O outputs, P pieces, R rows.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.inference.huge_pages import settle

PIECES = 8  # whatever the number of threads, so that it does not change the numbers
TINY = 2**14  # weights: below that the way to a product in pieces costs more than it saves

Product = Callable[[Tensor], Tensor]  # (..., I) to (..., O)
M = TypeVar("M", bound=nn.Module)


class QuickLinear(nn.Module):
    """x W^T + b, multiplied by whoever is fastest at so many rows."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.out_features, self.in_features = linear.weight.shape
        self.weight = linear.weight  # the very parameter: a table of tokens may share it
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x.numel() // x.shape[-1])(x)

    def product(self, rows: int) -> Product:
        """The product that is best at so many rows of x, and right for any number."""
        weight, bias = self.weight, self.bias
        if not by_one_dnn(weight):  # the model was cast, or moved, since
            return lambda x: F.linear(x, weight, bias)
        if rows == 1:
            return in_pieces(weight, bias)
        return lambda x: one_dnn(x, weight, bias)


def in_pieces(weight: Tensor, bias: Tensor | None) -> Product:
    """x W^T + b for one row of x, and right for any number.

    Given a matrix and a vector, the library behind torch reads on one core, and not at its best.
    Given several products at once, here one for each piece of W, it takes all cores.
    """
    outputs, inputs = weight.shape
    if weight.numel() < TINY or outputs < PIECES or not weight.is_contiguous():
        return lambda x: F.linear(x, weight, bias)
    even = outputs - outputs % PIECES
    pieces = weight[:even].view(PIECES, even // PIECES, inputs)  # (P, O/P, I)
    # x^T for every piece, told in strides: a column that seems to jump by 1 and not by I would
    # be taken for a row, and go the slow way.
    shape, strides, one_row = (PIECES, inputs, 1), (0, 1, inputs), (1, inputs)
    by_piece: Product = partial(torch.bmm, pieces)  # (P, I, R) to (P, O/P, R)
    if bias is not None:
        by_piece = partial(torch.baddbmm, bias[:even].view(PIECES, even // PIECES, 1), pieces)
    rest, rest_bias = weight[even:], None if bias is None else bias[even:]

    def multiply(x: Tensor) -> Tensor:
        if x.shape == one_row and even == outputs and x.is_contiguous():
            # What nearly every product is: in a small model each step less is to be felt.
            return by_piece(x.as_strided(shape, strides)).view(1, outputs)
        rows = x.numel() // inputs
        turned = x.contiguous().as_strided((PIECES, inputs, rows), strides)  # (P, I, R)
        y = by_piece(turned)  # (P, O/P, R)
        y = y if rows == 1 else y.permute(2, 0, 1)  # (R, P, O/P), but of one row the same
        y = y.reshape(*x.shape[:-1], even)
        if even == outputs:
            return y
        return torch.cat((y, F.linear(x, rest, rest_bias)), -1)  # (..., O)

    return multiply


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


def quicken(model: nn.Module) -> nn.Module:
    """Let every matrix be multiplied as is fastest, in place; names and values stay."""
    return settle(replace_linears(model))


def replace_linears(model: M) -> M:
    """Put a `QuickLinear` with the same parameters in the place of each matrix."""
    for parent, name, linear in list(_linears(model)):
        parent.register_module(name, QuickLinear(linear))
    return model


def pack(model: nn.Module, rows: int) -> nn.Module:
    """Put packed matrices in the place of the model's.

    A matrix that is also a table of tokens stays a tensor: packed, it could not be looked up,
    and a copy would cost memory.
    """
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for parent, name, linear in list(_linears(model)):
        shared = id(linear.weight) in tables
        packed = QuickLinear(linear) if shared else PackedLinear(linear, rows)
        parent.register_module(name, packed)
    return settle(model)


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
