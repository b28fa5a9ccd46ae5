"""Dependence: which outputs change when one input changes, and where in the model it starts.

Axes: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearformer.verification.calls import TRIANGLES, Inputs, nothing
from clearformer.verification.trace import Op, Trace

if TYPE_CHECKING:
    from clearformer.verification.probe import Probe


def dependence(probe: Probe, length: int | None = None, *, seed: int = 0, **options: Any) -> Tensor:
    """(T, T): how much output i changes with input j, relative to the output; 0 = not at all."""
    inputs = probe.inputs(batch=2, length=length, seed=seed)
    base = probe.run(inputs, **options)
    table = torch.zeros(inputs.length, inputs.length, dtype=torch.float64)
    if base.dim() < 3 or base.shape[1] != inputs.length:
        return table
    for position in range(inputs.length):
        changed = probe.run(probe.change(inputs, 0, position), **options)
        for query in range(inputs.length):
            table[query, position] = probe.differs(base[0, query], changed[0, query])
    return table


def future(table: Tensor) -> Tensor:
    """The part of a table that looks ahead."""
    return table.triu(1)


def first_leak(table: Tensor) -> tuple[int, int] | None:
    """The nearest pair (output, later input) that should not be connected."""
    pairs = future(table).nonzero().tolist()
    return min(
        ((i, j) for i, j in pairs), key=lambda pair: (pair[1] - pair[0], pair[0]), default=None
    )


@dataclass(frozen=True)
class Origin:
    """The first operation that carries a later input to an earlier position."""

    op: Op
    trace: Trace
    length: int


def leak_origin(probe: Probe, position: int, **options: Any) -> Origin | None:
    """Where a change at `position` first reaches earlier positions."""
    inputs = probe.inputs(batch=2, length=options.pop("length", None))
    changed = probe.change(inputs, 0, position)
    one, _ = probe.trace(inputs, **options)
    other, _ = probe.trace(changed, **options)
    if [op.name for op in one.ops] != [op.name for op in other.ops]:
        return None
    for before, after in zip(one.ops, other.ops, strict=True):
        if _leaks(before, after, inputs.length, position):
            return Origin(before, one, inputs.length)
    return None


def _leaks(before: Op, after: Op, length: int, position: int) -> bool:
    a, b = before.value, after.value
    if a is None or b is None or a.shape != b.shape or not a.is_floating_point():
        return False
    axes = [axis for axis, size in enumerate(a.shape) if size == length]
    if len(axes) != 1 or a.dim() < 2:
        return False
    (axis,) = axes
    gap = (a - b).nan_to_num().abs().narrow(axis, 0, position)
    size = float(a.double().nan_to_num(posinf=0, neginf=0).abs().max()) or 1.0
    return gap.numel() > 0 and float(gap.max()) > 1e-6 * size


def supply_causal_mask(probe: Probe) -> None:
    """Find the causal mask that a caller is to pass, if the model has a parameter for one."""
    masks = [each for each in probe.parameter("pair_mask") if each.name not in probe.form.same]
    if not masks or not probe.per_token:
        return
    table = dependence(probe)
    if not bool(future(table).any()):
        return  # causal by itself
    original = probe.form
    for mask in masks:
        for make in TRIANGLES:
            probe.form = replace(original, supplied={**original.supplied, mask.name: make})
            try:
                masked = dependence(probe)
            except Exception:
                continue
            if bool(masked.any()) and not bool(future(masked).any()):
                probe.supplied_mask = (mask.name, make)
                probe.form = original
                return
    probe.form = original


def same_inputs(probe: Probe, inputs: Inputs, row: int, other: int) -> Inputs:
    """Inputs whose row `other` is that of new ones."""
    fresh = probe.inputs(batch=inputs.batch, length=inputs.length, seed=77)
    stream = inputs.stream.clone()
    stream[other] = fresh.stream[other]
    return inputs.with_stream(stream)


def unused(supplied: Mapping[str, Any]) -> bool:
    return all(make is nothing for make in supplied.values())
