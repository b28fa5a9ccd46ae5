"""Records what a model computes, without a line in the model's own code.

`interventions.instrument` calls a recording at every named stage. What `mask` and `positions`
change is restored afterwards, also after an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.core.embedding import Embedding
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Full, Pattern
from clearformer.core.positions import NoPosition
from clearformer.explore import stages
from clearformer.extensions.embedding import NeighbourEmbedding
from clearformer.interventions.instrument import (
    AnyTransformer,
    Listener,
    PartLayer,
    Site,
    Span,
    attentions,
    blocks,
    listening,
)

__all__ = [
    "PATTERNS",
    "AnyTransformer",
    "MaskChoice",
    "PartLayer",
    "Recorder",
    "Recording",
    "attentions",
    "blocks",
    "recording",
]

MaskChoice = Literal["model", "none", "causal"]
PATTERNS: Mapping[str, Pattern] = {"none": Full(), "causal": Causal()}


@dataclass(frozen=True)
class Recorder:
    """Which stages to record, and the recorded tensors."""

    capture: Collection[str]
    layers: Collection[int] | None = None  # None: all
    recorded: dict[PartLayer, dict[str, Tensor]] = field(default_factory=dict)
    nonfinite: dict[PartLayer, dict[str, tuple[int, int]]] = field(default_factory=dict)
    shapes: dict[PartLayer, dict[str, tuple[int, ...]]] = field(default_factory=dict)

    def record(self, key: PartLayer, tensors: Mapping[str, Tensor]) -> None:
        """Record stages of one layer; each tensor has a batch of one."""
        if self.layers is not None and key[1] not in self.layers:
            return
        shapes = {name: tuple(tensor.shape[1:]) for name, tensor in tensors.items()}
        self.shapes.setdefault(key, {}).update(shapes)
        counts = stages.count_nonfinite(
            {n: t for n, t in tensors.items() if n not in stages.SUMMARIES}
        )
        self.nonfinite.setdefault(key, {}).update(counts)
        captured = {name: tensor for name, tensor in tensors.items() if name in self.capture}
        # In the order of the computation, whichever was recorded first.
        merged = self.recorded.get(key, {}) | captured
        self.recorded[key] = {name: merged[name] for name in stages.AXES if name in merged}


class Recording(Listener):
    """Records what a model computes; `mask` replaces its pattern."""

    def __init__(self, recorder: Recorder, mask: MaskChoice) -> None:
        self.recorder = recorder
        self.pattern = PATTERNS.get(mask)

    def visit(self, site: Site, x: Tensor, span: Span) -> Tensor:
        part, layer, stage = site
        tensors = {stage: x}
        if stage == "weights":
            tensors |= stages.summaries(x, self.recorder.capture)
        self.recorder.record((part, layer), tensors)
        return x

    def mask(self, part: str, mask: Mask) -> Mask:
        # `mask` is about one sequence; cross-attention keeps its pattern.
        if self.pattern is None or part == "cross":
            return mask
        return Mask(self.pattern, mask.attention_mask)


@contextmanager
def recording(
    model: AnyTransformer, recorder: Recorder, mask: MaskChoice, positions: bool
) -> Iterator[None]:
    """Record a forward pass; `mask` and `positions` change what the model computes."""
    originals: list[tuple[nn.Module, str, Any]] = []

    def patch(owner: nn.Module, name: str, value: object) -> None:
        originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    try:
        if not positions:
            for module in model.modules():
                if isinstance(module, Embedding | Attention):
                    patch(module, "scheme", NoPosition())
                if isinstance(module, NeighbourEmbedding):
                    patch(module, "neighbours", None)  # pairs of tokens know the order too
        with listening(model, Recording(recorder, mask)):
            yield
    finally:
        for owner, name, value in reversed(originals):
            setattr(owner, name, value)
