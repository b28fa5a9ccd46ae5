"""Linear layers for fast decoding on a CPU, without gradients.

A decoding step reads every weight once and computes little, so that memory bandwidth limits it.
Two transformations of a finished model:

`use_fast_products` is for one text at a time: a matrix-vector product is split into pieces, which
all threads share. `pack` is for several texts: it stores matrices in the blocked layout of oneDNN.
Both move the remaining tensors to huge pages.

Axes: B batch, I inputs, O outputs, P pieces, R rows.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.inference.huge_pages import use_huge_pages

PIECES = 8  # for any number of threads, so that results do not depend on it
MIN_WEIGHTS = 2**14  # of a matrix; splitting smaller ones does not pay off

Product = Callable[[Tensor], Tensor]  # (..., I) to (..., O)
M = TypeVar("M", bound=nn.Module)


@runtime_checkable
class HasProduct(Protocol):
    """A linear layer that offers its product as a function, chosen for a number of rows."""

    def product(self, rows: int) -> Product: ...


class FastLinear(nn.Module):
    """x W^T + b, by the fastest product for the number of rows."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.out_features, self.in_features = linear.weight.shape
        self.weight = linear.weight  # not a copy: it may be tied to the embedding
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x.numel() // x.shape[-1])(x)

    def product(self, rows: int) -> Product:
        """The fastest product for this number of rows; correct for any number."""
        weight, bias = self.weight, self.bias
        if not supports_onednn(weight):  # the model was cast, or moved, since
            return lambda x: F.linear(x, weight, bias)
        if rows == 1:
            return split_product(weight, bias)
        return lambda x: onednn_linear(x, weight, bias)


def split_product(weight: Tensor, bias: Tensor | None) -> Product:
    """x W^T + b, fast for one row of x and correct for any number.

    torch computes a matrix-vector product on a single core. A batched product, here with a piece of
    W for each batch, uses all cores.
    """
    outputs, inputs = weight.shape
    if weight.numel() < MIN_WEIGHTS or outputs < PIECES or not weight.is_contiguous():
        return lambda x: F.linear(x, weight, bias)
    even = outputs - outputs % PIECES
    pieces = weight[:even].view(PIECES, even // PIECES, inputs)  # (P, O/P, I)
    # x^T for every piece, with explicit strides: with a stride of 1 instead of I, torch would take
    # the column for a row and use a slow path.
    shape, strides, one_row = (PIECES, inputs, 1), (0, 1, inputs), (1, inputs)
    by_piece: Product = partial(torch.bmm, pieces)  # (P, I, R) to (P, O/P, R)
    if bias is not None:
        by_piece = partial(torch.baddbmm, bias[:even].view(PIECES, even // PIECES, 1), pieces)
    rest, rest_bias = weight[even:], None if bias is None else bias[even:]

    def multiply(x: Tensor) -> Tensor:
        if x.shape == one_row and even == outputs and x.is_contiguous():
            # The most common case, with the least overhead.
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
    """x W^T + b with W in oneDNN's blocked layout, for about `rows` rows of x at a time."""

    def __init__(self, linear: nn.Linear, rows: int) -> None:
        super().__init__()
        self.out_features, self.in_features = linear.weight.shape
        self.bias = linear.bias
        weight = linear.weight.detach().contiguous()
        self.packed: Any = torch.ops.mkldnn._reorder_linear_weight(weight, rows)

    def forward(self, x: Tensor) -> Tensor:
        return onednn_linear(x, self.packed, self.bias)  # (..., O)

    @property
    def weight(self) -> Tensor:
        """The original matrix, for users of a part of it (cross-attention)."""
        return cast(Tensor, self.packed.to_dense())  # (O, I)


def packed_product(weight: Tensor, bias: Tensor | None, rows: int) -> Product:
    """x W^T + b with a packed copy of W, for about `rows` rows of x at a time."""
    packed: Any = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), rows)
    return lambda x: onednn_linear(x, packed, bias)


def use_fast_products(model: nn.Module) -> nn.Module:
    """Replace every linear layer by a `FastLinear`, in place; names and values do not change."""
    return use_huge_pages(replace_linears(model))


def replace_linears(model: M) -> M:
    """Replace every linear layer by a `FastLinear` with the same parameters."""
    for parent, name, linear in list(_linears(model)):
        parent.register_module(name, FastLinear(linear))
    return model


def pack(model: nn.Module, rows: int) -> nn.Module:
    """Replace every linear layer by a `PackedLinear`, in place.

    A matrix that is tied to the embedding stays a tensor: a packed one cannot be indexed, and a
    copy would cost memory.
    """
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for parent, name, linear in list(_linears(model)):
        shared = id(linear.weight) in tables
        packed = FastLinear(linear) if shared else PackedLinear(linear, rows)
        parent.register_module(name, packed)
    return use_huge_pages(model)


def supports_onednn(weight: Tensor) -> bool:
    """Whether oneDNN can multiply by this matrix."""
    supported = weight.device.type == "cpu" and weight.dtype == torch.float32
    return supported and torch.backends.mkldnn.is_available()


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b: for several rows faster than torch's own product on most CPUs."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def _linears(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """Parent, name and module of every matrix that oneDNN can multiply."""
    for parent in model.modules():
        for name, module in parent.named_children():
            if isinstance(module, nn.Linear) and supports_onednn(module.weight):
                yield parent, name, module
