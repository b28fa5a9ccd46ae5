"""Memory of a Transformer-XL across training steps, for each row of the batch.

Each micro-batch has its own memory for each layer, since its rows continue those of the last
step. On disk a layer's memory is one tensor over all rows of the batch, so that a run may resume
with another number of micro-batches.

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
        """Clear all memories: the next rows start anew."""
        self.parts = [self._empty() for _ in self.parts]

    def using(self, loss: Callable[..., Any], batches: Sequence[Any]) -> Loss:
        """The loss of a micro-batch with its own memory."""
        caches_of = {id(batch): caches for batch, caches in zip(batches, self.parts, strict=False)}
        return lambda batch: loss(batch, caches_of[id(batch)])

    def advance(self) -> None:
        """Commit the pending states of a step's micro-batches."""
        for caches in self.parts:
            for cache in caches:
                cache.advance()

    def tensors(self, group: ProcessGroup = SINGLE_PROCESS) -> dict[str, Tensor]:
        """The memory of each layer over all rows (B, K, E); empty if all memories are."""
        tensors = {}
        for layer in range(self.layers):
            states = [caches[layer].states for caches in self.parts]
            filled = [each for each in states if each is not None]
            if filled:
                tensors[f"{layer}"] = group.stack(torch.cat(filled)).flatten(0, 1)
        return tensors

    def load(
        self,
        tensors: Mapping[str, Tensor],
        device: torch.device,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        """Load this rank's rows of what `tensors` returned, by any number of ranks."""
        if not tensors:
            self.forget()
            return
        layers, widths = len(tensors), {tensor.shape[-1] for tensor in tensors.values()}
        if layers != self.layers or widths != {self.width}:
            raise ValueError(
                f"the memory has {layers} layers of width {_list(widths)}, but the model has "
                f"{self.layers} of width {self.width}: it was made by another model"
            )
        for layer in range(self.layers):
            rows = tensors[f"{layer}"].tensor_split(group.world_size)[group.rank]
            pieces = rows.to(device).tensor_split(len(self.parts))
            for caches, piece in zip(self.parts, pieces, strict=True):
                caches[layer].states, caches[layer].pending = piece, None

    def _empty(self) -> list[HiddenMemory]:
        return [HiddenMemory(self.capacity) for _ in range(self.layers)]


def _list(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
