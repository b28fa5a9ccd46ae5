"""What a model computed for one text, stage by stage: `trace(model, text).get("weights", 2, 1)`.

The model computes as ever; `recording.py` lends it parts that also write down, and takes them
back. Stages and their names are those of `stages.py`.

Axes: T tokens, Q queries, K keys, H heads, D head width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearformer.core.cache import HiddenMemory, Past
from clearformer.explore.recording import (
    PATTERNS,
    MaskChoice,
    Model,
    Notes,
    Place,
    attentions,
    recording,
)
from clearformer.explore.stages import AXES, basic_stages
from clearformer.explore.subject import Input, Subject, as_subject, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PATTERNS", "MaskChoice", "Trace", "attentions", "basic_stages", "trace"]


@dataclass(frozen=True)
class Trace:
    """Every stage that was asked for, by part and layer, and what the model put out."""

    recorded: Mapping[Place, Mapping[str, Tensor]]  # by (part, layer); each has a batch of one
    output: Any  # as the model gives it: logits, of BERT two of them
    subject: Subject
    input: Input
    settings: Mapping[str, Any] = field(default_factory=dict)  # what `trace` was asked
    not_finite: Mapping[Place, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    shapes: Mapping[Place, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)

    def get(
        self, stage: str, layer: int | None = None, head: int | None = None, part: str = "self"
    ) -> Tensor:
        """One stage of one layer, of all heads or of one; the logits belong to no layer."""
        if stage == "logits":
            return self.logits
        if layer is None:
            raise ValueError(f"{stage} is computed in every layer: say which, as in layer=0")
        if (part, layer) not in self.recorded:
            known = ", ".join(f"{part} {layer}" for part, layer in self.recorded)
            raise ValueError(f"{part} layer {layer} was not recorded: there are {known}")
        found = self.recorded[part, layer]
        if stage not in found:
            raise ValueError(f"there is no stage {stage!r}: there are {', '.join(found)}")
        if head is None:
            return found[stage][0]
        if not AXES[stage].startswith("H"):
            raise ValueError(f"{stage} has no heads: leave head out")
        heads = found[stage].shape[1]
        if not 0 <= head < heads:
            raise ValueError(f"head is {head}, but the model has heads 0 to {heads - 1}")
        return found[stage][0, head]

    @property
    def logits(self) -> Tensor:
        """What the model put out: (T, V), or (C,) of a classifier."""
        output = self.output[0] if isinstance(self.output, tuple) else self.output
        logits: Tensor = output[0]
        return logits

    @property
    def parts(self) -> list[str]:
        return list(dict.fromkeys(part for part, _ in self.recorded))

    def tokens(self, part: str = "self") -> list[str]:
        """The tokens that look, as text."""
        return self.subject.pieces(self.input.queries(part))

    def key_tokens(self, part: str = "self") -> list[str]:
        """The tokens that are looked at: of a memory first, of the source in cross-attention."""
        return self.subject.pieces(self.input.keys(part))

    # --- pictures --------------------------------------------------------------------------

    def picture(self, layer: int = 0, head: int = 0, part: str | None = None) -> Figure:
        """The weights of one head, for papers and slides."""
        from clearformer.explore import figures

        return figures.attention(self, layer, head, part or self.parts[0])

    def html(self, layer: int = 0, head: int = 0, query: int | None = None) -> str:
        """One file that shows this trace in any browser, without a network."""
        from clearformer.explore.notebook import page

        return page(self, layer, head, query)

    def save(self, path: Path | str, layer: int = 0, head: int = 0) -> None:
        """The same as a file."""
        Path(path).write_text(self.html(layer, head), encoding="utf-8")

    def _repr_html_(self) -> str:
        from clearformer.explore.notebook import frame

        return frame(self.html())


def trace(
    model: Model | Any,
    tokens: str | Tensor | Sequence[int] | tuple[Any, Any],
    capture: Collection[str] = tuple(AXES),
    *,
    layers: Sequence[int] | None = None,
    mask: MaskChoice = "model",
    positions: bool = True,
    pad_to: int | None = None,
    segment: int | None = None,
    memory: int | None = None,
) -> Trace:
    """Run a text through a model and note what it computed.

    `model` is a model, or anything that has one with its config and tokenizer (what `open_run`
    gives); then `tokens` may be text. An encoder-decoder reads `(source, target)`, or one
    sequence for both. `mask` replaces the model's pattern (padding stays), `positions=False`
    takes away every position scheme: together they show a transformer as the set function it
    is. `pad_to` adds padding, to see that nobody looks at it. A model with a memory reads
    segment by segment, and the last one is noted.
    """
    unknown = sorted(set(capture) - AXES.keys())
    if unknown:
        raise ValueError(f"there is no stage {unknown[0]!r}: there are {', '.join(AXES)}")
    if mask not in ("model", *PATTERNS):
        raise ValueError(f"mask is {mask!r}, but it must be model, none or causal")
    subject = as_subject(model)
    given = read(subject, tokens, pad_to=pad_to, segment=segment, memory=memory)
    _require_layers(subject.model, layers)
    notes = Notes(capture, layers)
    inner, was_training = subject.model, subject.model.training
    inner.eval()
    try:
        with torch.inference_mode(), recording(inner, notes, mask, positions):
            output = _run(subject, given)
    finally:
        inner.train(was_training)
    settings = {"mask": mask, "positions": positions, "pad_to": pad_to}
    settings |= {} if memory is None else {"segment": segment, "memory": memory}
    return Trace(notes.recorded, output, subject, given, settings, notes.not_finite, notes.shapes)


def _run(subject: Subject, given: Input) -> Any:
    """The model's output for the input, for the last segment where there is a memory."""
    model, device = subject.model, subject.device

    def on_device(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.to(device)

    if given.target is not None:
        source, target = given.tokens.to(device), given.target.to(device)
        return model(source, target, on_device(given.keep), on_device(given.target_keep))
    model = subject.transformer
    pasts: list[Past] | None = None
    if given.memory is not None:
        pasts = [HiddenMemory(given.memory) for _ in model.stack.blocks]
        for start in range(0, given.start, given.segment):
            model(given.tokens[:, start : start + given.segment].to(device), pasts=pasts)
            for past in pasts:
                past.advance()
    own = given.tokens[:, given.start :].to(device)
    return model(own, on_device(given.keep), on_device(given.segments), pasts)


def _require_layers(model: Model, layers: Sequence[int] | None) -> None:
    count = 1 + max(layer for _, layer in attentions(model))
    for layer in layers or ():
        if not 0 <= layer < count:
            raise ValueError(f"layer is {layer}, but the model has layers 0 to {count - 1}")
