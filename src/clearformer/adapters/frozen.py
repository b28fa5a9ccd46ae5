"""Frozen matrices in bfloat16 or int8, through which gradients flow.

A frozen matrix is only read, so it may be held in fewer bits than the weights that learn. Products
are computed with the matrix in the type of the input; for the backward pass nothing but the held
numbers is kept.

Axes: R rows (tokens of a batch), I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clearformer.inference.int8 import rounded

Held = Literal["float32", "bfloat16", "int8"]


class FrozenLinear(nn.Module):
    """x W^T + b with W in bfloat16, or in int8 with a scale for each row."""

    numbers: Tensor  # (O, I)
    scale: Tensor | None  # (O,)

    def __init__(self, linear: nn.Linear, held: Held) -> None:
        super().__init__()
        self.out_features, self.in_features = linear.weight.shape
        weight, scale = linear.weight.detach(), None
        if held == "int8":
            weight, scale = rounded(weight)
        # Buffers that are not saved: they follow from the model that is adapted.
        self.register_buffer("numbers", weight.to(getattr(torch, held)), persistent=False)
        self.register_buffer("scale", scale, persistent=False)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])  # (R, I)
        product = cast(Any, _Product).apply(rows, self.numbers, self.scale, self.bias)  # (R, O)
        return cast(Tensor, product).view(*x.shape[:-1], -1)  # (..., O)

    @property
    def weight(self) -> Tensor:
        """The matrix that the products are computed with, in float32."""
        return dense(self.numbers, self.scale, torch.float32)  # (O, I)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """A plain layer with this matrix."""
        return plain_linear(self.weight, self.bias)


def plain_linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A linear layer with these tensors."""
    outputs, inputs = weight.shape
    linear = nn.Linear(inputs, outputs, bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight)
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach())
    return linear


def dense(numbers: Tensor, scale: Tensor | None, dtype: torch.dtype) -> Tensor:
    """A held matrix (O, I) in another type."""
    if scale is None:
        return numbers.to(dtype)
    return (numbers.to(scale.dtype) * scale[:, None]).to(dtype)


class _Product(torch.autograd.Function):
    """x W^T + b; the gradient of x alone, since W and b are frozen."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, numbers: Tensor, scale: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(numbers, scale)
        ctx.dtype = rows.dtype
        return F.linear(rows, dense(numbers, scale, rows.dtype), bias)  # (R, O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = gradients  # (R, O)
        numbers, scale = ctx.saved_tensors
        weight = dense(numbers, scale, gradient.dtype)  # (O, I)
        return (gradient @ weight).to(ctx.dtype), None, None, None


def hold(linear: nn.Linear, held: Held) -> nn.Linear | FrozenLinear:
    """The same layer with its matrix held like this."""
    return linear if held == "float32" else FrozenLinear(linear, held)
