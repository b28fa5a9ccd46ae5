"""Functions of tensors that give the same bits on any CPU.

IEEE 754 fixes the result of +, -, *, /, square root and rounding, but neither the order of a sum
nor `exp`. So matrix products are made exact: both factors are rounded to integers of about 22 bits,
each row with a power of two as its scale. All partial sums are integers below 2^53, which float64
holds exactly, and exact sums do not depend on their order. Other sums add the second half of a list
to its first until one number is left, and functions are polynomials in the operations above.

Every result depends on the numbers of its own row alone, not on the shape of a batch. All tensors
are float64. Axes: M rows, K summed axis, N columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal

import torch
from torch import Tensor

MANTISSA = 53  # bits of a float64
LOWEST, HIGHEST = -1000, 1000  # exponents of the scales
SMALLEST = -690.0  # exp of less is 0; above it no power of two is outside the table
_DECIMAL = Context(prec=40)

# ln 2 and pi / 2 in two parts: multiples of the first, of 32 bits, are exact.
LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
HALF_PI_HIGH = float.fromhex("0x1.921fb54400000p+0")
HALF_PI_LOW = float.fromhex("0x1.0b4611a626331p-34")
LOG2_E = 1.4426950408889634
EXP = [1 / math.factorial(n) for n in range(13)]
SINE = [(-1) ** n / math.factorial(2 * n + 1) for n in range(9)]
COSINE = [(-1) ** n / math.factorial(2 * n) for n in range(9)]
LOG = [2 / (2 * n + 1) for n in range(12)]
# Abramowitz and Stegun 7.1.26: 1 - erf(x) is a polynomial in 1 / (1 + 0.3275911 x) times exp(-x^2),
# with an error below 1.5e-7.
ERF_STEP = 0.3275911
ERF = [0.0, 0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429]

_POWERS = torch.tensor(
    [math.ldexp(1.0, n) for n in range(LOWEST, HIGHEST + 1)], dtype=torch.float64
)


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b for (..., M, K) and (..., K, N), from factors of about 22 bits."""
    return quantized_product(quantized(a, -1), quantized(b, -2))


def quantized(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Integers in float64, and the powers of two by which they are to be multiplied."""
    bits = (MANTISSA - max(1, x.shape[dim] - 1).bit_length()) // 2
    _, exponents = torch.frexp(x.abs().amax(dim, keepdim=True))
    exponents = exponents.clamp(LOWEST + bits, HIGHEST - bits)
    return (x * powers_of_two(bits - exponents)).round(), powers_of_two(exponents - bits)


def quantized_product(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
    return torch.matmul(a[0], b[0]) * a[1] * b[1]  # (..., M, N)


def powers_of_two(exponents: Tensor) -> Tensor:
    """2^n for integers n from LOWEST to HIGHEST."""
    return _POWERS[exponents.long() - LOWEST]


def total(x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    """The sum over some dimensions, in an order that depends on their sizes alone."""
    for dim in sorted((dim % x.dim() for dim in dims), reverse=True):
        while (size := x.shape[dim]) > 1:
            half = (size + 1) // 2
            first, second = x.narrow(dim, 0, half), x.narrow(dim, half, size - half)
            if size % 2:
                second = torch.cat((second, torch.zeros_like(x.narrow(dim, 0, 1))), dim)
            x = first + second
        x = x if keepdim else x.squeeze(dim) if x.shape[dim] else x.new_zeros(())
    return x


def mean(x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    return total(x, dims, keepdim) / math.prod(x.shape[dim] for dim in dims)


def softmax(x: Tensor, dim: int) -> Tensor:
    powers = exp(x - x.amax(dim, keepdim=True))
    return powers / total(powers, [dim], keepdim=True)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """softmax(scale q k^T, masked) v; a mask is boolean, true where a key is visible, or added."""
    groups = q.shape[-3] // k.shape[-3]
    if groups > 1:
        k, v = (each.repeat_interleave(groups, -3) for each in (k, v))
    scores = product(q * scale, k.transpose(-2, -1))  # (..., Q, K)
    if mask is not None and mask.dtype == torch.bool:
        scores = torch.where(mask, scores, -math.inf)
    elif mask is not None:
        scores = scores + mask
    empty = scores.amax(-1, keepdim=True) == -math.inf
    weights = softmax(torch.where(empty, 0.0, scores), -1)
    return product(torch.where(empty, 0.0, weights), v)


def layer_norm(
    x: Tensor, dims: Sequence[int], weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> Tensor:
    centred = x - mean(x, dims, keepdim=True)
    y = rms_norm(centred, dims, weight, epsilon)
    return y if bias is None else y + bias


def rms_norm(x: Tensor, dims: Sequence[int], weight: Tensor | None, epsilon: float) -> Tensor:
    y = x / (mean(x * x, dims, keepdim=True) + epsilon).sqrt()
    return y if weight is None else y * weight


def exp(x: Tensor) -> Tensor:
    inside = x.clamp(SMALLEST, -SMALLEST)
    halvings = (inside * LOG2_E).round()
    rest = inside - halvings * LN2_HIGH - halvings * LN2_LOW  # at most 0.35 from 0
    y = polynomial(rest, EXP) * powers_of_two(halvings.nan_to_num())
    return torch.where(x < SMALLEST, 0.0, torch.where(x > -SMALLEST, math.inf, y))


def log(x: Tensor) -> Tensor:
    share, exponents = torch.frexp(x)  # from 0.5 to 1
    small = share < math.sqrt(0.5)
    share = torch.where(small, share * 2, share)
    exponents = (exponents - small.int()).double()
    ratio = (share - 1) / (share + 1)  # log(share) = 2 (r + r^3 / 3 + r^5 / 5 + ...)
    y = polynomial(ratio * ratio, LOG) * ratio + exponents * LN2_LOW + exponents * LN2_HIGH
    y = torch.where(x == 0, -math.inf, torch.where(x == math.inf, math.inf, y))
    return torch.where(x < 0, math.nan, y)


def power(base: float, x: Tensor) -> Tensor:
    return exp(x * float(Decimal(base).ln(_DECIMAL)))


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + exp(-x))


def tanh(x: Tensor) -> Tensor:
    return 1 - 2 / (exp(2 * x) + 1)


def erf(x: Tensor) -> Tensor:
    size = x.abs()
    y = 1 - polynomial(1 / (1 + size * ERF_STEP), ERF) * exp(-(size * size))
    return torch.where(x < 0, -y, y)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (1 + tanh(inner))
    return x * 0.5 * (1 + erf(x * math.sqrt(0.5)))


def sin(x: Tensor) -> Tensor:
    return _wave(x, 0)


def cos(x: Tensor) -> Tensor:
    return _wave(x, 1)


def _wave(x: Tensor, quarter: int) -> Tensor:
    """sin(x + quarter pi / 2)."""
    turns = (x * (2 / math.pi)).round()
    rest = x - turns * HALF_PI_HIGH - turns * HALF_PI_LOW  # at most 0.79 from 0
    square = rest * rest
    sine, cosine = polynomial(square, SINE) * rest, polynomial(square, COSINE)
    place = (turns.long() + quarter) % 4
    y = torch.where(place % 2 == 0, sine, cosine)
    return torch.where(place >= 2, -y, y)


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """c_0 + c_1 x + c_2 x^2 + ..., from the last coefficient on."""
    y = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        y = y * x + coefficient
    return y
