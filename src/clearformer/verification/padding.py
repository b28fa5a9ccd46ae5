"""Padding masks: which parameter takes one, in which shape, and what True means.

Axes: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearformer.verification.calls import Inputs, Maker
from clearformer.verification.probe import Probe

HIDDEN = 2  # the position that is masked to see what a mask does
SHAPES = ("BT", "B11T", "B1T", "BTT", "B1TT")
KEEP_NAMES = ("attention_mask", "input_mask", "token_mask", "src_attention_mask")
HIDE_NAMES = ("key_padding_mask", "src_key_padding_mask", "tgt_key_padding_mask")


@dataclass(frozen=True)
class PaddingMask:
    """How a padding mask is passed."""

    name: str
    shape: str
    hide: bool  # True means hidden
    integer: bool = False
    positions: str | None = None  # the parameter that takes position ids

    def arguments(self, real: Tensor) -> dict[str, Any]:
        """Arguments for `real` (B, T), True = a real token."""
        batch, length = real.shape
        table = ~real if self.hide else real
        if self.shape == "B1T":
            table = table[:, None]
        elif self.shape == "B11T":
            table = table[:, None, None]
        elif self.shape == "BTT":
            table = table[:, None].expand(batch, length, length)
        elif self.shape == "B1TT":
            table = table[:, None, None].expand(batch, 1, length, length)
        found: dict[str, Any] = {self.name: table.long() if self.integer else table.clone()}
        if self.positions is not None:
            found[self.positions] = (real.long().cumsum(dim=1) - 1).clamp(min=0)
        return found


@dataclass(frozen=True)
class Effect:
    """What a mask does to outputs."""

    works: bool  # the hidden position has no effect on the others
    matters: bool  # passing the mask changes something


def mask_candidates(probe: Probe) -> Iterator[PaddingMask]:
    """Ways to pass a padding mask, the likeliest first."""
    positions = next((each.name for each in probe.parameters if each.name == "position_ids"), None)
    supplied = {name for name, make in probe.form.supplied.items() if _hides(make)}
    names = [
        each.name
        for each in probe.parameter("padding", "pair_mask", "target_padding", "source_mask")
        if each.name not in supplied
    ]
    names = [n for n in names if probe.form.source is None or "enc" not in n]
    for name in names:
        for shape in SHAPES:
            for integer in (False, True):
                for hide in (name in HIDE_NAMES, name not in HIDE_NAMES):
                    yield PaddingMask(name, shape, hide, integer, positions)


def _hides(make: Maker) -> bool:
    """Whether a mask that has to be passed hides something."""
    made = make(2, 3, torch.float64)
    return isinstance(made, Tensor) and not bool(made.bool().all())


def real_tokens(batch: int, length: int, hidden: int, left: bool) -> Tensor:
    """(B, T): the first row has `hidden` padded positions, the others none."""
    real = torch.ones(batch, length, dtype=torch.bool)
    if left:
        real[0, :hidden] = False
    else:
        real[0, length - hidden :] = False
    return real


def effect_of(probe: Probe, mask: PaddingMask, **options: Any) -> Effect | None:
    """Whether a mask hides one position of row 0; None: it cannot be passed so."""
    inputs = probe.inputs(batch=2)
    real = torch.ones(2, inputs.length, dtype=torch.bool)
    real[0, HIDDEN] = False  # not the first: a causal query 0 would see nothing at all
    try:
        extra = mask.arguments(real)
        base = probe.run(inputs, extra=extra, **options)
        other = probe.run(probe.change(inputs, 0, HIDDEN), extra=extra, **options)
        open_ = mask.arguments(torch.ones_like(real))
        if mask.positions is not None:
            open_[mask.positions] = extra[mask.positions]
        unmasked = probe.run(inputs, extra=open_, **options)
    except Exception:
        return None
    if base.dim() < 2 or base.shape != other.shape:
        return None
    rest = [each for each in range(inputs.length) if each != HIDDEN]
    seen = base[0, rest] if probe.per_token else base[0]
    new = other[0, rest] if probe.per_token else other[0]
    full = unmasked[0, rest] if probe.per_token else unmasked[0]
    finite = bool(seen.isfinite().all()) and bool(unmasked.isfinite().all())
    return Effect(finite and not probe.differs(seen, new), bool(probe.differs(seen, full)))


@dataclass(frozen=True)
class Found:
    """The result of looking for a padding mask."""

    mask: PaddingMask | None  # the way that works
    tried: PaddingMask | None  # a way that could be passed, but did not hide anything
    matters: bool = False


def find_mask(probe: Probe) -> Found:
    """The padding mask of a model."""
    cached = probe.__dict__.get("_padding")
    if cached is None:
        cached = probe.__dict__["_padding"] = _find(probe)
    return cached


def _find(probe: Probe) -> Found:
    passed: PaddingMask | None = None
    useless: PaddingMask | None = None
    meant: PaddingMask | None = None  # can be passed, and True means what the name says
    for mask in mask_candidates(probe):
        effect = effect_of(probe, mask)
        if effect is None:
            continue
        meant = meant or (mask if mask.hide == (mask.name in HIDE_NAMES) else None)
        if effect.works and effect.matters:
            return Found(mask, None, True)
        if effect.matters:
            passed = passed or mask
        elif mask.shape in ("BT", "BTT", "B1TT", "B11T"):
            useless = useless or mask
    if passed is not None:
        known = passed.name in (*KEEP_NAMES, *HIDE_NAMES)
        return Found(None, meant if known and meant is not None else passed, True)
    return Found(None, useless, False)


def padded(probe: Probe, hidden: int, left: bool, fill: int) -> tuple[Inputs, Tensor]:
    """Inputs whose first row is padded, with another filling for each `fill`."""
    inputs = probe.inputs(batch=3)
    real = real_tokens(3, inputs.length, hidden, left)
    stream = inputs.stream.clone()
    other = probe.inputs(batch=3, seed=50 + fill).stream
    stream[~real] = other[~real]
    return inputs.with_stream(stream), real
