"""int4 weights: an eighth of the memory of float32, for inference on a CPU.

Each group of 32 weights in a row becomes integers from 0 to 15 with a scale and a zero, both in
bfloat16: 5 bits a weight. The product is torch's, with inputs and results in bfloat16.

The token embedding and the head stay in int8: they are read row by row, or their errors go
straight into the logits. So do matrices whose shape the kernel does not support.

Axes: I inputs, O outputs, N groups of a row.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from clearformer.inference import int8

GROUP = 32  # weights with a scale of their own
LEVELS = 15
ROWS = 16  # the kernel wants a multiple of this number of outputs
# Parts of the range of a group that are tried. A smaller range has finer steps, and clips the
# largest weights.
RANGES = (1.0, 0.95, 0.9, 0.85, 0.8)

# x (R, I), a packed matrix, the size of its groups, and their scales and zeros, to (R, O)
multiply: Callable[[Tensor, Tensor, int, Tensor], Tensor] = (
    torch.ops.aten._weight_int4pack_mm_for_cpu.default
)

Groups = tuple[Tensor, Tensor, Tensor]  # integers (O, I), scales (O, N), zeros (O, N)


def rounded(weight: Tensor) -> Groups:
    """Integers from 0 to 15, with the scale and the zero of each group: w = (n - 8) scale + zero.

    Of the ranges tried, the one with the smallest squared error.
    """
    groups = weight.detach().float().unflatten(1, (-1, GROUP))  # (O, N, 32)
    low, high = groups.amin(-1), groups.amax(-1)  # each (O, N)
    middle, span = (low + high) / 2, (high - low).clamp(min=1e-8)
    best = torch.full_like(low, torch.inf)
    numbers, scale, zero = torch.zeros_like(groups), torch.zeros_like(low), torch.zeros_like(low)
    for part in RANGES:
        # Rounded to bfloat16 first, so that the integers fit what is stored.
        steps = (span * part / LEVELS).bfloat16().float()  # (O, N)
        offset = (middle - span * part / 2 + 8 * steps).bfloat16().float()
        n = ((groups - offset[..., None]) / steps[..., None]).round_().add_(8).clamp_(0, LEVELS)
        error = ((n - 8) * steps[..., None] + offset[..., None]).sub_(groups).square_().sum(-1)
        better = error < best  # (O, N)
        best = torch.where(better, error, best)
        numbers = torch.where(better[..., None], n, numbers)
        scale, zero = torch.where(better, steps, scale), torch.where(better, offset, zero)
    return numbers.flatten(1).to(torch.int32), scale, zero


class Int4Linear(nn.Module):
    """x W^T + b with W in int4."""

    packed: Tensor
    scales: Tensor

    def __init__(self, groups: Groups, bias: Tensor | None) -> None:
        super().__init__()
        numbers, scale, zero = groups
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        self.out_features, self.in_features = numbers.shape
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
        self.register_buffer("packed", packed, persistent=False)
        pairs = torch.stack((scale, zero), -1).transpose(0, 1)  # (N, O, 2)
        self.register_buffer("scales", pairs.bfloat16().contiguous(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features).bfloat16()
        y = multiply(rows, self.packed, GROUP, self.scales)
        # The sum of bfloat16 and float32 is float32.
        y = y if self.bias is None else y + self.bias
        return y.to(x.dtype).view(*x.shape[:-1], self.out_features)  # (..., O)

    def product(self, rows: int) -> Callable[[Tensor], Tensor]:
        """The same function of float32 (R, I), with the least overhead."""
        packed, scales, bias = self.packed, self.scales, self.bias
        if bias is None:
            return lambda x: multiply(x.bfloat16(), packed, GROUP, scales).float()  # (R, O)
        return lambda x: multiply(x.bfloat16(), packed, GROUP, scales) + bias

    @property
    def weight(self) -> Tensor:
        """The dequantized matrix, for users of a part of it."""
        identity = torch.eye(self.in_features, dtype=torch.bfloat16)
        return multiply(identity, self.packed, GROUP, self.scales).t().float()  # (O, I)


def quantize(model: nn.Module) -> nn.Module:
    """Replace the model's matrices by int4 modules, and the embedding and head by int8 ones."""
    head = set(cast(nn.Module, model.head).modules())
    for parent, name, module in list(int8.matrices(model)):
        if isinstance(module, nn.Linear) and parent not in head and supports(module.weight):
            parent.register_module(name, Int4Linear(rounded(module.weight), module.bias))
    return int8.quantize(model)


def supports(weight: Tensor) -> bool:
    """Whether torch's kernel can multiply by a matrix of this shape."""
    outputs, inputs = weight.shape
    return weight.device.type == "cpu" and outputs % ROWS == 0 and inputs % GROUP == 0
