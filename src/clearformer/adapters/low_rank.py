"""LoRA and DoRA as layers: each answers like the linear layer in whose place it is put.

LoRA computes W' = W + s B A, with a frozen matrix W, two narrow ones that learn, and a constant s.
DoRA gives each row of W' a length that learns too: W'_i = m_i (W + s B A)_i / |(W + s B A)_i|.
B is zero at first and m the lengths of W's rows, so that W' = W.

A matrix may hold several that are adapted on their own, such as queries, keys and values. Each
has its rows, and its own A and B.

Axes: R rows (tokens of a batch), I inputs, O outputs, K rank (of all parts together).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.adapters.frozen import FrozenLinear, plain_linear

Base = nn.Linear | FrozenLinear
MIN_LENGTH = 1e-12  # of a row: one of zeros has no direction


class Factors(nn.Module):
    """A and B for some of the rows of a matrix."""

    def __init__(self, rows: range, inputs: int, rank: int) -> None:
        super().__init__()
        self.rows = rows
        self.A = nn.Parameter(torch.zeros(rank, inputs))  # (K, I)
        self.B = nn.Parameter(torch.zeros(len(rows), rank))  # (rows, K)

    def draw(self, generator: torch.Generator) -> None:
        """Draw A as torch draws the weight of a linear layer; B stays zero."""
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5), generator=generator)


class LoRALinear(nn.Module):
    """x (W + s B A)^T + b, with W and b frozen."""

    base: Base

    def __init__(
        self, base: Base, rows: Mapping[str, range], rank: int, scale: float, dropout: float
    ) -> None:
        super().__init__()
        self.base = base
        self.out_features, self.in_features = base.out_features, base.in_features
        self.scale = scale
        in_order = sorted(rows, key=lambda name: rows[name].start)
        self.parts = nn.ModuleDict(
            {name: Factors(rows[name], self.in_features, rank) for name in in_order}
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)  # (R, I)
        a, b = self.factors()
        inner = F.linear(self.dropout(rows), a) * self.scale  # (R, K)
        y = self.update(self.base(rows), inner, a, b)  # (R, O)
        return y.view(*x.shape[:-1], self.out_features)  # (..., O)

    def update(self, y: Tensor, inner: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """The base's y (R, O), which is overwritten, and s x A^T B^T."""
        return y.addmm_(inner, b.t().to(y.dtype))

    def factors(self) -> tuple[Tensor, Tensor]:
        """A (K, I) and B (O, K) of the whole matrix; B is zero outside the rows of each part."""
        parts = [part for _, part in self.named_parts()]
        whole = [
            part.B
            if len(part.rows) == self.out_features
            else F.pad(part.B, (0, 0, part.rows.start, self.out_features - part.rows.stop))
            for part in parts
        ]
        if len(parts) == 1:
            return parts[0].A, whole[0]
        return torch.cat([part.A for part in parts]), torch.cat(whole, dim=1)

    def row_factors(self) -> Tensor | None:
        """What each row of W + s B A is multiplied by (O,); None: by nothing."""
        return None

    def named_parts(self) -> Iterator[tuple[str, Factors]]:
        """The parts in the order of their rows."""
        for name, part in self.parts.items():
            assert isinstance(part, Factors)
            yield name, part

    @property
    def weight(self) -> Tensor:
        """W', for users of a part of it (cross-attention); without dropout."""
        a, b = self.factors()
        return self.base.weight + self.scale * (b @ a)  # (O, I)

    @property
    def bias(self) -> Tensor | None:
        return self.base.bias

    def reset(self, generator: torch.Generator | None) -> None:
        """The state in which W' = W; A is drawn if there is a generator."""
        if generator is not None:
            for _, part in self.named_parts():
                part.draw(generator)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """A plain layer with W', computed in float64."""
        a, b = (each.double() for each in self.factors())
        return plain_linear((self.base.weight.double() + self.scale * (b @ a)).float(), self.bias)


class DoRALinear(LoRALinear):
    """LoRA for the direction of each row, and a length that learns.

    The length that a row is divided by is a constant for the gradient, as in the paper.
    """

    squared: Tensor  # (O,), |W_i|^2

    def __init__(
        self, base: Base, rows: Mapping[str, range], rank: int, scale: float, dropout: float
    ) -> None:
        super().__init__(base, rows, rank, scale, dropout)
        with torch.no_grad():
            squared = base.weight.float().square().sum(dim=1)
        self.register_buffer("squared", squared, persistent=False)
        self.magnitude = nn.ParameterDict(
            {name: nn.Parameter(torch.ones(len(own))) for name, own in rows.items()}
        )

    def update(self, y: Tensor, inner: Tensor, a: Tensor, b: Tensor) -> Tensor:
        c = self.ratio(a, b)  # (O,)
        dtype, y, inner = y.dtype, y.to(c.dtype), inner.to(c.dtype)
        # c (x W^T) + b from x W^T + b, so that c = 1 changes no bit.
        y = y * c if self.bias is None else torch.addcmul(self.bias * (1 - c), y, c)
        return y.addmm_(inner, (b * c[:, None]).t()).to(dtype)

    def ratio(self, a: Tensor, b: Tensor) -> Tensor:
        """m / |W + s B A| of each row (O,)."""
        with torch.no_grad():
            # |W + s BA|^2 = |W|^2 + 2 s W.(BA) + s^2 |BA|^2, without a matrix as large as W.
            both = 2 * F.linear(self.base.weight.to(a.dtype), a) + self.scale * (
                b @ (a @ a.t())
            )  # (O, K)
            squared = self.squared + self.scale * (b * both).sum(dim=1)
            length = squared.clamp(min=MIN_LENGTH**2).sqrt()
        return self.lengths() / length

    def row_factors(self) -> Tensor:
        return self.ratio(*self.factors())

    def lengths(self) -> Tensor:
        """m (O,); for rows that are not adapted the length that they have."""
        own = self.squared.clamp(min=MIN_LENGTH**2).sqrt()
        pieces, end = [], 0
        for name, part in self.named_parts():
            pieces += [own[end : part.rows.start], self.magnitude[name]]
            end = part.rows.stop
        return torch.cat([*pieces, own[end:]])

    @property
    def weight(self) -> Tensor:
        a, b = self.factors()
        return self.ratio(a, b)[:, None] * (self.base.weight + self.scale * (b @ a))  # (O, I)

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None) -> None:
        super().reset(generator)
        for name, part in self.named_parts():
            own = self.squared[part.rows.start : part.rows.stop]
            self.magnitude[name].copy_(own.clamp(min=MIN_LENGTH**2).sqrt())

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        a, b = (each.double() for each in self.factors())
        weight = self.base.weight.double() + self.scale * (b @ a)  # (O, I)
        ratio = self.lengths().double() / weight.norm(dim=1).clamp(min=MIN_LENGTH)
        return plain_linear((weight * ratio[:, None]).float(), self.bias)
