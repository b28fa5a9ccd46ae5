"""Records what a model computes, without a line in the model's own code.

While a recording runs, every attention has a kernel that computes the same and records each
stage, and every block a residual connection that records its input and output; forward hooks
record the rest. All of it is restored afterwards, also after an error.

Axes: B batch, T tokens, E model width, F hidden width, H heads, D head width.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.core.block import Block, DecoderBlock, GatedFeedForward, Part, Residual
from clearformer.core.embedding import Embedding
from clearformer.core.kernels import Kernel
from clearformer.core.masks import Mask
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.core.patterns import Causal, Full, Pattern
from clearformer.core.positions import NoPosition
from clearformer.explore import stages
from clearformer.extensions.embedding import NeighbourEmbedding

AnyTransformer = Transformer | Seq2Seq
PartLayer = tuple[str, int]  # which part of the model, and which layer of it
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


def attentions(model: AnyTransformer) -> dict[PartLayer, Attention]:
    """Every attention of a model by part and layer."""
    by_layer: dict[PartLayer, Attention] = {}
    for part, layer, block in blocks(model):
        by_layer[part, layer] = block.attention
        if isinstance(block, DecoderBlock):
            by_layer["cross", layer] = block.cross_attention
    return by_layer


def blocks(model: AnyTransformer) -> Iterator[tuple[str, int, Block | DecoderBlock]]:
    """Every block with its part and layer."""
    for part, stack in model.stacks.items():
        for layer, block in enumerate(stack.blocks):
            assert isinstance(block, Block | DecoderBlock)
            yield part, layer, block


@contextmanager
def recording(
    model: AnyTransformer, recorder: Recorder, mask: MaskChoice, positions: bool
) -> Iterator[None]:
    """Record a forward pass; `mask` and `positions` change what the model computes."""
    originals: list[tuple[nn.Module, str, Any]] = []
    hooks: list[Any] = []

    def patch(owner: nn.Module, name: str, value: object) -> None:
        originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    try:
        for key, attention in attentions(model).items():
            patch(attention, "kernel", _kernel(key, recorder, mask))
            hooks += _attention_hooks(key, attention, recorder)
            if not positions:
                patch(attention, "scheme", NoPosition())
        for part, layer, block in blocks(model):
            patch(block, "residual", _residual((part, layer), block, recorder))
            hooks += _feed_forward_hooks((part, layer), block.feed_forward, recorder)
        if not positions:
            for module in model.modules():
                if isinstance(module, Embedding):
                    patch(module, "scheme", NoPosition())
                if isinstance(module, NeighbourEmbedding):
                    patch(module, "neighbours", None)  # pairs of tokens know the order too
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for owner, name, value in reversed(originals):
            setattr(owner, name, value)


def _kernel(key: PartLayer, recorder: Recorder, mask: MaskChoice) -> Kernel:
    def kernel(
        q: Tensor, k: Tensor, v: Tensor, model_mask: Mask, bias: Tensor | None, dropout: float
    ) -> Tensor:
        # `mask` is about one sequence; cross-attention keeps its pattern.
        pattern = model_mask.pattern
        if key[0] != "cross":
            pattern = PATTERNS.get(mask, pattern)
        tensors = stages.attention_stages(q, k, v, Mask(pattern, model_mask.attention_mask), bias)
        recorder.record(key, tensors | stages.summaries(tensors["weights"], recorder.capture))
        return tensors["head_out"]

    return kernel


def _residual(key: PartLayer, block: Block | DecoderBlock, recorder: Recorder) -> Residual:
    """The block's residual connection, recording the residual stream around each sublayer."""
    original: Residual = block.residual
    norms = {id(block.attention_norm): "attention", id(block.feed_forward_norm): "last"}

    def residual(x: Tensor, part: Part, norm: nn.Module, dropout: nn.Module) -> Tensor:
        y = original(x, part, norm, dropout)
        which = norms.get(id(norm), "cross")
        if which == "attention":
            recorder.record(key, {"resid_pre": x, "resid_mid": y})
        elif which == "cross":
            recorder.record(("cross", key[1]), {"resid_pre": x, "resid_mid": y})
        else:
            recorder.record(key, {"resid_post": y})
        return y

    return residual


def _attention_hooks(key: PartLayer, attention: Attention, recorder: Recorder) -> list[Any]:
    keys: list[Tensor] = []  # of this call; those of a memory are projected last

    def queries_projected(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        recorder.record(key, {"q_proj": arguments[0]})

    def keys_projected(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        keys.insert(0, arguments[0])  # (B, G, T, D)

    def attended(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
        recorder.record(key, {"attn_in": arguments[0], "attn_out": output})
        if keys:
            groups = attention.heads // attention.key_heads
            every = torch.cat(keys, dim=2).repeat_interleave(groups, dim=1)
            recorder.record(key, {"k_proj": every})
        keys.clear()

    return [
        attention.query_norm.register_forward_pre_hook(queries_projected),
        attention.key_norm.register_forward_pre_hook(keys_projected),
        attention.register_forward_hook(attended),
    ]


def _feed_forward_hooks(key: PartLayer, module: nn.Module, recorder: Recorder) -> list[Any]:
    gated = isinstance(module, GatedFeedForward)

    def rows(x: Tensor) -> Tensor:
        return x.reshape(1, -1, x.shape[-1])  # (1, T, F), whatever shape the layer uses

    def went_up(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        before = output.chunk(2, dim=-1)[0] if gated else output
        recorder.record(key, {"mlp_pre": rows(before).clone()})  # the activation may be in place

    def goes_down(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        recorder.record(key, {"mlp_hidden": rows(arguments[0])})

    def fed(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        recorder.record(key, {"mlp_out": output})

    up, down = module.up, module.down
    assert isinstance(up, nn.Module)
    assert isinstance(down, nn.Module)
    return [
        up.register_forward_hook(went_up),
        down.register_forward_pre_hook(goes_down),
        module.register_forward_hook(fed),
    ]
