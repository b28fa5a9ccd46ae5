"""What a Transformer-XL in training remembers from step to step, by row of the batch.

Each micro-batch has a memory of its own for each layer, since its rows go on where they stood.
On disk a layer's memory is one tensor by global row, so that a run may go on with its batch cut
into other micro-batches.

Axes: B batch, K states remembered, E model width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clearformer.core.cache import HiddenMemory
from clearformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from clearformer.training.step import Loss


class Memories:
    """One `HiddenMemory` for each layer of each micro-batch."""

    def __init__(self, layers: int, width: int, capacity: int, parts: int) -> None:
        self.layers = layers
        self.width = width
        self.capacity = capacity
        self.parts = [self._empty() for _ in range(parts)]

    def forget(self) -> None:
        """Begin anew: the rows to come continue nothing."""
        self.parts = [self._empty() for _ in self.parts]

    def using(self, loss: Callable[..., Any], batches: Sequence[Any]) -> Loss:
        """The loss of a micro-batch, which reads the memory that belongs to it."""
        own = {id(batch): caches for batch, caches in zip(batches, self.parts, strict=False)}
        return lambda batch: loss(batch, own[id(batch)])

    def advance(self) -> None:
        """Commit what the micro-batches of a step left pending."""
        for caches in self.parts:
            for cache in caches:
                cache.advance()

    def tensors(self, group: ProcessGroup = SINGLE_PROCESS) -> dict[str, Tensor]:
        """The memory of each layer by global row (B, K, E); nothing if nothing is remembered."""
        found = {}
        for layer in range(self.layers):
            states = [caches[layer].states for caches in self.parts]
            known = [each for each in states if each is not None]
            if known:
                found[f"{layer}"] = group.stack(torch.cat(known)).flatten(0, 1)
        return found

    def load(
        self,
        found: Mapping[str, Tensor],
        device: torch.device,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        """Put back what `tensors` gave: the rows of this rank, however many ranks there were."""
        if not found:
            self.forget()
            return
        layers, widths = len(found), {tensor.shape[-1] for tensor in found.values()}
        if layers != self.layers or widths != {self.width}:
            raise ValueError(
                f"the memory has {layers} layers of width {_list(widths)}, but the model has "
                f"{self.layers} of width {self.width}: it was made by another model"
            )
        for layer in range(self.layers):
            rows = found[f"{layer}"].tensor_split(group.world_size)[group.rank]
            pieces = rows.to(device).tensor_split(len(self.parts))
            for caches, piece in zip(self.parts, pieces, strict=True):
                caches[layer].states, caches[layer].pending = piece, None

    def _empty(self) -> list[HiddenMemory]:
        return [HiddenMemory(self.capacity) for _ in range(self.layers)]


def _list(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
