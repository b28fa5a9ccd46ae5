"""What an edit does at a point: each change is a value that maps a region to another.

Axes: B batch, T tokens, Q queries, K keys, H heads, E model width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from clearformer.interventions.instrument import Site, Span
from clearformer.interventions.points import AXES, Point, Recorded

Index = tuple[slice | list[int], ...]


class Change(Protocol):
    """One change of an edit."""

    def apply(self, site: Site, x: Tensor, span: Span) -> Tensor:
        """The new value of a stage (B, ...)."""
        ...


@dataclass(frozen=True)
class Scale:
    """The region times a number; 0 switches it off."""

    point: Point
    factor: float | Tensor

    def apply(self, site: Site, x: Tensor, span: Span) -> Tensor:
        index, dropped = self.point.region(site.stage, x, span)
        # Zero also where the value is infinite, as a masked score is.
        if self.is_zero:
            return _written(x, index, torch.zeros_like(x[index]))
        factor = self.factor
        if isinstance(factor, Tensor):
            factor = _fitted(factor, site, x[index], dropped)
        return _written(x, index, x[index] * factor)

    @property
    def is_zero(self) -> bool:
        return not isinstance(self.factor, Tensor) and self.factor == 0


@dataclass(frozen=True)
class Add:
    """A vector added to the region."""

    point: Point
    vector: Tensor

    def apply(self, site: Site, x: Tensor, span: Span) -> Tensor:
        index, dropped = self.point.region(site.stage, x, span)
        return _written(x, index, x[index] + _fitted(self.vector, site, x[index], dropped))


@dataclass(frozen=True)
class Put:
    """The region replaced by a tensor, or by what a trace recorded at the same point."""

    point: Point
    value: Tensor | Recorded

    def apply(self, site: Site, x: Tensor, span: Span) -> Tensor:
        index, dropped = self.point.region(site.stage, x, span)
        if isinstance(self.value, Tensor):
            new = _fitted(self.value, site, x[index], dropped)
            return _written(x, index, new.expand_as(x[index]))
        recorded = constant(self.value.get(site.stage, site.layer, None, site.part))[None]
        try:
            at, _ = self.point.region(site.stage, recorded, Span())
        except ValueError as problem:
            raise ValueError(f"{self.point}: in the trace, {problem}") from None
        new = recorded[at].to(x)
        if new.shape[1:] != x[index].shape[1:]:
            raise ValueError(
                f"{self.point}: the trace has shape {_shape(recorded)}, but the pass has "
                f"{_shape(x)}: trace a text of as many tokens, or choose positions with .at()"
            )
        return _written(x, index, new.expand_as(x[index]))


@dataclass(frozen=True)
class Average:
    """The region replaced by its mean over all tokens of some traces."""

    point: Point
    traces: Sequence[Recorded]

    def apply(self, site: Site, x: Tensor, span: Span) -> Tensor:
        index, _ = self.point.region(site.stage, x, span)
        axis = [each.startswith("T") for each in AXES[site.stage].split(",")].index(True)
        every = [self.point_value(trace, site) for trace in self.traces]
        mean = torch.cat(every, dim=axis).mean(dim=axis, keepdim=True)[None].to(x)  # (1, ..., E)
        every_token = mean.expand_as(x[:1])
        return _written(x, index, every_token[:, *index[1:]].expand_as(x[index]))

    def point_value(self, trace: Recorded, site: Site) -> Tensor:
        return constant(trace.get(site.stage, site.layer, None, site.part))


@dataclass
class SetWeights:
    """Attention weights set to numbers.

    With `renormalize` the other weights of the row are scaled so that it sums to 1.
    """

    renormalize: bool = True
    cells: list[tuple[Point, float]] = field(default_factory=list)

    def apply(self, site: Site, x: Tensor, span: Span) -> Tensor:
        chosen = torch.zeros(x.shape[1:], dtype=torch.bool, device=x.device)  # (H, Q, K)
        values = torch.zeros(x.shape[1:], dtype=x.dtype, device=x.device)
        for point, weight in self.cells:
            index, _ = point.region(site.stage, x, span)
            chosen[index[1:]], values[index[1:]] = True, weight
        if not self.renormalize:
            return torch.where(chosen, values, x)
        rows = chosen.any(dim=-1, keepdim=True)  # (H, Q, 1)
        total = values.sum(dim=-1, keepdim=True)
        if bool((total > 1 + 1e-6).any()):
            raise ValueError(
                f"the weights set in one row of {site.part} layer {site.layer} sum to "
                f"{float(total.max()):.4g}, but a row sums to 1: set smaller weights, or pass "
                f"renormalize=False"
            )
        others = x.masked_fill(chosen, 0.0)
        rest = others.sum(dim=-1, keepdim=True)  # (B, H, Q, 1)
        factor = (1 - total) / torch.where(rest > 0, rest, 1.0)
        return torch.where(rows, torch.where(chosen, values, others * factor), x)


def constant(x: Tensor) -> Tensor:
    """A recorded tensor as a constant that autograd accepts."""
    return x.clone() if x.is_inference() else x.detach()


def _written(x: Tensor, index: Index, region: Tensor) -> Tensor:
    y = x.clone()
    y[index] = region
    return y


def _fitted(value: Tensor, site: Site, region: Tensor, dropped: Sequence[int]) -> Tensor:
    """A tensor that broadcasts to the region (B, ...), given without its narrowed axes."""
    fitted = constant(value) if value.is_inference() else value
    fitted = fitted.to(device=region.device, dtype=region.dtype)
    if fitted.dim() > 1:
        for axis in dropped:
            fitted = fitted.unsqueeze(axis - region.dim())
    try:
        torch.broadcast_shapes(fitted.shape, region.shape)
        fits = fitted.expand_as(region).shape == region.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"{site.stage} of layer {site.layer}: the value has shape {tuple(value.shape)}, but "
            f"the point has {_shape(region)}: pass a tensor that broadcasts to it"
        )
    return fitted


def _shape(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape[1:])
