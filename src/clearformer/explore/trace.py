"""Traces a forward pass stage by stage: `trace(model, text).get("weights", layer=2, head=1)`.

`recording.py` records the stages without changing what the model computes. The names of the
stages are those of `stages.py`.

Axes: T tokens, Q queries, K keys, H heads, D head width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearformer.core.cache import Cache, HiddenMemory
from clearformer.explore.recording import (
    PATTERNS,
    AnyTransformer,
    MaskChoice,
    PartLayer,
    Recorder,
    attentions,
    recording,
)
from clearformer.explore.stages import AXES, basic_stages
from clearformer.explore.traced_model import ModelInput, TracedModel, as_traced_model, encode_input
from clearformer.inference.modes import evaluating

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PATTERNS", "MaskChoice", "Trace", "attentions", "basic_stages", "run", "trace"]


@dataclass(frozen=True)
class Trace:
    """The captured stages by part and layer, and the output of the model."""

    recorded: Mapping[PartLayer, Mapping[str, Tensor]]  # by (part, layer); each has a batch of one
    output: Any  # of the module: logits, or a tuple of them
    model: TracedModel
    input: ModelInput
    settings: Mapping[str, Any] = field(default_factory=dict)  # arguments of `trace`
    nonfinite: Mapping[PartLayer, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    shapes: Mapping[PartLayer, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)

    def __repr__(self) -> str:
        layers = len({layer for _, layer in self.recorded})
        tokens = self.input.tokens.shape[1]
        return f"<Trace of {self.model.name}: {tokens} tokens, {layers} layers>"

    def get(
        self, stage: str, layer: int | None = None, head: int | None = None, part: str = "self"
    ) -> Tensor:
        """One stage of a layer, for all heads or one; the logits belong to no layer."""
        if stage == "logits":
            return self.logits
        if layer is None:
            raise ValueError(f"{stage} is computed in every layer: choose one, as in layer=0")
        if (part, layer) not in self.recorded:
            recorded = ", ".join(f"{part} {layer}" for part, layer in self.recorded)
            raise ValueError(f"{part} layer {layer} was not recorded: there are {recorded}")
        stages = self.recorded[part, layer]
        if stage not in stages:
            raise ValueError(f"there is no stage {stage!r}: there are {', '.join(stages)}")
        if head is None:
            return stages[stage][0]
        if not AXES[stage].startswith("H"):
            raise ValueError(f"{stage} has no heads: leave head out")
        heads = stages[stage].shape[1]
        if not 0 <= head < heads:
            raise ValueError(f"head is {head}, but the model has heads 0 to {heads - 1}")
        return stages[stage][0, head]

    def weights(self, layer: int, head: int | None = None, part: str | None = None) -> Tensor:
        """Attention weights (Q, K) of one head of a layer, or (H, Q, K) of all."""
        return self.get("weights", layer, head, part or self.parts[0])

    @property
    def logits(self) -> Tensor:
        """The logits of the model: (T, V), or (C,) of a classifier."""
        output = self.output[0] if isinstance(self.output, tuple) else self.output
        logits: Tensor = output[0]
        return logits

    @property
    def parts(self) -> list[str]:
        return list(dict.fromkeys(part for part, _ in self.recorded))

    def layers(self, part: str) -> list[int]:
        """The recorded layers of a part."""
        return [layer for each, layer in self.recorded if each == part]

    def stacked(self, stage: str, part: str) -> Tensor:
        """One stage of all recorded layers of a part: (L, ...)."""
        return torch.stack([self.recorded[part, n][stage][0] for n in self.layers(part)])

    def tokens(self, part: str = "self") -> list[str]:
        """The tokens at the query positions, as text."""
        return self.model.pieces(self.input.queries(part))

    def key_tokens(self, part: str = "self") -> list[str]:
        """The tokens at the key positions: a memory comes first, and cross-attention has the
        source."""
        return self.model.pieces(self.input.keys(part))

    # --- pictures --------------------------------------------------------------------------

    def picture(self, layer: int = 0, head: int = 0, part: str | None = None) -> Figure:
        """A figure of the weights of one head."""
        from clearformer.explore import figures

        return figures.attention(self, layer, head, part or self.parts[0])

    def html(self, layer: int = 0, head: int = 0, query: int | None = None) -> str:
        """A self-contained HTML page that shows this trace in any browser, offline."""
        from clearformer.explore.notebook import page

        return page(self, layer, head, query)

    def save(self, path: Path | str, layer: int = 0, head: int = 0) -> None:
        """Write the HTML page to a file."""
        try:
            Path(path).write_text(self.html(layer, head), encoding="utf-8")
        except OSError as problem:
            raise ValueError(f"{path} cannot be written: {problem.strerror}") from None

    def _repr_html_(self) -> str:
        from clearformer.explore.notebook import frame

        return frame(self.html())


def trace(
    model: object,
    tokens: str | Tensor | Sequence[int] | tuple[object, object],
    capture: Collection[str] = tuple(AXES),
    *,
    layers: Sequence[int] | None = None,
    mask: MaskChoice = "model",
    positions: bool = True,
    pad_to: int | None = None,
    segment: int | None = None,
    memory: int | None = None,
) -> Trace:
    """Run a text through a model and record what it computes.

    Args:
        model (Model or nn.Module): A loaded model, or a module that `build` returned.
        tokens (str, ids, or pair of these): One text; a module alone takes ids. An
            encoder-decoder takes ``(source, target)``, or one sequence for both.
        capture (collection of str): Stages to record. Default: all.
        layers (list of int, optional): Layers to record, counted from 0. Default: all.
        mask (str): ``"none"`` or ``"causal"`` replaces the model's attention pattern; padding
            stays masked. Default: ``"model"``.
        positions (bool): False removes every position scheme; with ``mask="none"`` a transformer
            is then a function of a set. Default: True.
        pad_to (int, optional): Pad the text to this many tokens. Default: no padding.
        segment (int, optional): Tokens that a model with a memory reads at a time; the last
            segment is recorded. Default: the model's length.
        memory (int, optional): States that such a model remembers. Default: as in training.

    Returns:
        Trace: The recorded stages; ``trace.weights(layer=0, head=0)`` are attention weights.
    """
    unknown = sorted(set(capture) - AXES.keys())
    if unknown:
        raise ValueError(f"there is no stage {unknown[0]!r}: there are {', '.join(AXES)}")
    if mask not in ("model", *PATTERNS):
        raise ValueError(f"mask is {mask!r}, but it must be model, none or causal")
    traced = as_traced_model(model)
    model_input = encode_input(traced, tokens, pad_to=pad_to, segment=segment, memory=memory)
    module = traced.module
    _require_layers(module, layers)
    recorder = Recorder(capture, layers)
    with evaluating(module), torch.inference_mode(), recording(module, recorder, mask, positions):
        output = run(traced, model_input)
    settings = {"mask": mask, "positions": positions, "pad_to": pad_to}
    settings |= {} if memory is None else {"segment": segment, "memory": memory}
    return Trace(
        recorder.recorded,
        output,
        traced,
        model_input,
        settings,
        recorder.nonfinite,
        recorder.shapes,
    )


def memory_of(traced: TracedModel, model_input: ModelInput) -> list[Cache] | None:
    """What a model with a memory remembers before the last segment; None: it has none."""
    if model_input.memory is None:
        return None
    module, tokens = traced.transformer, model_input.tokens.to(traced.device)
    caches: list[Cache] = [HiddenMemory(model_input.memory) for _ in module.stack.blocks]
    for start in range(0, model_input.start, model_input.segment):
        module(tokens[:, start : start + model_input.segment], caches=caches)
        for cache in caches:
            cache.advance()
    return caches


def run(traced: TracedModel, model_input: ModelInput, caches: list[Cache] | None = None) -> Any:
    """The output for the input, or for its last segment if the model has a memory.

    With `caches` that `memory_of` made, only the last segment is computed.
    """
    device = traced.device

    def on_device(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.to(device)

    if model_input.target is not None:
        source, target = model_input.tokens.to(device), model_input.target.to(device)
        return traced.module(
            source,
            target,
            on_device(model_input.attention_mask),
            on_device(model_input.target_attention_mask),
        )
    module = traced.transformer
    caches = memory_of(traced, model_input) if caches is None else caches
    tokens = model_input.tokens[:, model_input.start :].to(device)
    return module(
        tokens, on_device(model_input.attention_mask), on_device(model_input.segments), caches
    )


def _require_layers(module: AnyTransformer, layers: Sequence[int] | None) -> None:
    count = 1 + max(layer for _, layer in attentions(module))
    for layer in layers or ():
        if not 0 <= layer < count:
            raise ValueError(f"layer is {layer}, but the model has layers 0 to {count - 1}")
