"""Puts an adapter into a model, and merges it into plain matrices again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeVar

import torch
from torch import nn

from clearformer.adapters.frozen import FrozenLinear, Held, hold
from clearformer.adapters.low_rank import DoRALinear, LoRALinear
from clearformer.adapters.targets import Slot, slots
from clearformer.config import Adapter, DoRA, LoRA

LAYERS: dict[type[Adapter], type[LoRALinear]] = {LoRA: LoRALinear, DoRA: DoRALinear}
M = TypeVar("M", bound=nn.Module)


def attach(
    model: M, adapter: Adapter, *, seed: int | None = None, learning: Collection[str] = ()
) -> M:
    """Replace the matrices that an adapter names, and freeze everything else, in place.

    Names in `learning` stay as they are: those of a new head. Without a seed A is zero: the weights
    of a saved adapter are loaded next.
    """
    found = list(slots(model))
    _require_targets(adapter, found)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in learning and parameter.requires_grad)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    held: Held = adapter.base or "float32"
    for slot in found:
        base, rows = hold(slot.linear, held), slot.parts(adapter.targets)
        if not rows:
            slot.parent.register_module(slot.name, base)
            continue
        _require_rank(adapter, slot, rows)
        with slot.linear.weight.device:
            layer = LAYERS[type(adapter)](base, rows, adapter.rank, adapter.scale, adapter.dropout)
        layer.reset(generator)
        slot.parent.register_module(slot.name, layer)
    return model


def merge(model: M) -> M:
    """Replace adapted layers by plain ones with W', and held matrices by plain ones, in place."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, LoRALinear | FrozenLinear):
                parent.register_module(name, layer.merged())
    return model


def adapted_layers(model: nn.Module) -> Iterator[tuple[str, LoRALinear]]:
    """The adapted layers of a model by their path."""
    for path, module in model.named_modules():
        if isinstance(module, LoRALinear):
            yield path, module


def _require_targets(adapter: Adapter, found: list[Slot]) -> None:
    known = list(dict.fromkeys(name for slot in found for name in slot.rows))
    for name in adapter.targets.split(","):
        if name not in (*known, "all") or not known:
            raise ValueError(
                f"the adapter's targets have {name!r}, but the blocks of this model have "
                f"{', '.join(known) or 'no matrices that can be adapted'}: choose among these"
            )


def _require_rank(adapter: Adapter, slot: Slot, rows: dict[str, range]) -> None:
    for name, own in rows.items():
        most = min(len(own), slot.linear.in_features)
        if adapter.rank > most:
            raise ValueError(
                f"the adapter's rank is {adapter.rank}, but {name} of {slot.path} is a matrix of "
                f"{len(own)} x {slot.linear.in_features}: choose a rank of at most {most}"
            )
