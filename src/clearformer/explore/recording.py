"""Lending a model parts that write down what they compute, and taking them back.

Every attention gets a kernel that computes the same and notes each stage, every block a
residual connection that notes what enters and leaves it; hooks note the rest. Model code knows
nothing of it: the fast path has no branch, no flag and no further result. All is put back
afterwards, also after an error.

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
from clearformer.core.positions import Position
from clearformer.explore import stages

Model = Transformer | Seq2Seq
Place = tuple[str, int]  # part and layer
Found = dict[str, Tensor]  # by stage, each with a batch of one
MaskChoice = Literal["model", "none", "causal"]
PATTERNS: Mapping[str, Pattern] = {"none": Full(), "causal": Causal()}


@dataclass(frozen=True)
class Notes:
    """What is to be written down, and what has been."""

    capture: Collection[str]
    layers: Collection[int] | None = None  # none: all
    recorded: dict[Place, Found] = field(default_factory=dict)
    not_finite: dict[Place, dict[str, tuple[int, int]]] = field(default_factory=dict)
    shapes: dict[Place, dict[str, tuple[int, ...]]] = field(default_factory=dict)

    def keep(self, place: Place, found: Mapping[str, Tensor]) -> None:
        if self.layers is not None and place[1] not in self.layers:
            return
        shapes = {name: tuple(tensor.shape[1:]) for name, tensor in found.items()}
        self.shapes.setdefault(place, {}).update(shapes)
        counts = stages.not_finite({n: t for n, t in found.items() if n not in stages.REDUCED})
        self.not_finite.setdefault(place, {}).update(counts)
        wanted = {name: tensor for name, tensor in found.items() if name in self.capture}
        # In the order of the computation, whichever part was noted first.
        both = self.recorded.get(place, {}) | wanted
        self.recorded[place] = {name: both[name] for name in stages.AXES if name in both}


def attentions(model: Model) -> dict[Place, Attention]:
    """Every attention of a model by part and layer."""
    found: dict[Place, Attention] = {}
    for part, layer, block in blocks(model):
        found[part, layer] = block.attention
        if isinstance(block, DecoderBlock):
            found["cross", layer] = block.cross_attention
    return found


def blocks(model: Model) -> Iterator[tuple[str, int, Block | DecoderBlock]]:
    """Every block with its part and layer."""
    for part, stack in model.stacks.items():
        for layer, block in enumerate(stack.blocks):
            assert isinstance(block, Block | DecoderBlock)
            yield part, layer, block


@contextmanager
def recording(model: Model, notes: Notes, mask: MaskChoice, positions: bool) -> Iterator[None]:
    """Within, the model writes into the notes; `mask` and `positions` change what it computes."""
    lent: list[tuple[nn.Module, str, Any]] = []
    hooks: list[Any] = []

    def lend(owner: nn.Module, name: str, value: object) -> None:
        lent.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    try:
        for place, attention in attentions(model).items():
            lend(attention, "kernel", _kernel(place, notes, mask))
            hooks += _attention_hooks(place, attention, notes)
            if not positions:
                lend(attention, "position", Position())
        for part, layer, block in blocks(model):
            lend(block, "residual", _residual((part, layer), block, notes))
            hooks += _feed_forward_hooks((part, layer), block.feed_forward, notes)
        if not positions:
            for module in model.modules():
                if isinstance(module, Embedding):
                    lend(module, "position", None)
                    lend(module, "neighbours", None)  # who stands beside whom is order too
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for owner, name, value in reversed(lent):
            setattr(owner, name, value)


def _kernel(place: Place, notes: Notes, mask: MaskChoice) -> Kernel:
    def kernel(
        q: Tensor, k: Tensor, v: Tensor, own: Mask, bias: Tensor | None, dropout: float
    ) -> Tensor:
        # Cross-attention looks at another sequence: its pattern is not up for change.
        chosen = own.pattern if place[0] == "cross" else PATTERNS.get(mask, own.pattern)
        found = stages.of_kernel(q, k, v, Mask(chosen, own.keep), bias)
        notes.keep(place, found | stages.reduced(found["weights"], notes.capture))
        return found["head_out"]

    return kernel


def _residual(place: Place, block: Block | DecoderBlock, notes: Notes) -> Residual:
    """The block's own residual connection, noting the stream before and after each part."""
    own: Residual = block.residual
    norms = {id(block.attention_norm): "attention", id(block.feed_forward_norm): "last"}

    def residual(x: Tensor, part: Part, norm: nn.Module, dropout: nn.Module) -> Tensor:
        y = own(x, part, norm, dropout)
        which = norms.get(id(norm), "cross")
        if which == "attention":
            notes.keep(place, {"resid_pre": x, "resid_mid": y})
        elif which == "cross":
            notes.keep(("cross", place[1]), {"resid_pre": x, "resid_mid": y})
        else:
            notes.keep(place, {"resid_post": y})
        return y

    return residual


def _attention_hooks(place: Place, attention: Attention, notes: Notes) -> list[Any]:
    keys: list[Tensor] = []  # of this call; a memory's are projected after the segment's own

    def queries_projected(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        notes.keep(place, {"q_proj": arguments[0]})

    def keys_projected(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        keys.insert(0, arguments[0])  # (B, G, T, D)

    def attended(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
        notes.keep(place, {"attn_in": arguments[0], "attn_out": output})
        if keys:
            every = torch.cat(keys, dim=2)
            groups = every.repeat_interleave(attention.heads // attention.key_heads, dim=1)
            notes.keep(place, {"k_proj": groups})
        keys.clear()

    return [
        attention.query_norm.register_forward_pre_hook(queries_projected),
        attention.key_norm.register_forward_pre_hook(keys_projected),
        attention.register_forward_hook(attended),
    ]


def _feed_forward_hooks(place: Place, module: nn.Module, notes: Notes) -> list[Any]:
    gated = isinstance(module, GatedFeedForward)

    def rows(x: Tensor) -> Tensor:
        return x.reshape(1, -1, x.shape[-1])  # (1, T, F), whatever shape the layer works in

    def went_up(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        before = output.chunk(2, dim=-1)[0] if gated else output
        notes.keep(place, {"mlp_pre": rows(before).clone()})  # the activation may write over it

    def goes_down(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        notes.keep(place, {"mlp_hidden": rows(arguments[0])})

    def fed(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        notes.keep(place, {"mlp_out": output})

    up, down = module.up, module.down
    assert isinstance(up, nn.Module)
    assert isinstance(down, nn.Module)
    return [
        up.register_forward_hook(went_up),
        down.register_forward_pre_hook(goes_down),
        module.register_forward_hook(fed),
    ]
