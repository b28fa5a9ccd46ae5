"""Calls listeners at every named stage of a forward pass, without a line in the model's code.

While a model is instrumented, each attention has a kernel that computes the explicit formula, and
each block a residual connection that reports its input and output; forward hooks report the
rest. A listener reads a stage, or returns another value for it. `trace` is a listener that
records; an edit is one that changes. The first instrument installs all this, the last removes it,
also after an error, so listeners nest: the outer ones come first.

Axes: B batch, T tokens, E model width, F hidden width, H heads, D head width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.core.block import Block, DecoderBlock, GatedFeedForward, Part, Residual
from clearformer.core.cache import NO_CACHE, Cache, HiddenMemory
from clearformer.core.kernels import Kernel
from clearformer.core.masks import Mask
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.core.positions import Position
from clearformer.interventions.stages import NORM_SCALES, attention_stages

AnyTransformer = Transformer | Seq2Seq
PartLayer = tuple[str, int]  # which part of the model, and which layer of it


class Site(NamedTuple):
    """One stage of one layer."""

    part: str
    layer: int
    stage: str


@dataclass(frozen=True)
class Span:
    """Which positions a forward pass reads: `start` counts those in a cache."""

    start: int = 0
    whole: bool = True  # there is no cache: the pass reads the whole sequence


class Listener:
    """Base of listeners: sees every stage, changes none."""

    def wants(self, site: Site) -> bool:
        """Whether `visit` is called for this stage."""
        return True

    def visit(self, site: Site, x: Tensor, span: Span) -> Tensor:
        """The value to go on with."""
        return x

    def mask(self, part: str, mask: Mask) -> Mask:
        """The mask of an attention in this part."""
        return mask


def blocks(model: AnyTransformer) -> Iterator[tuple[str, int, Block | DecoderBlock]]:
    """Every block with its part and layer."""
    for part, stack in model.stacks.items():
        for layer, block in enumerate(stack.blocks):
            assert isinstance(block, Block | DecoderBlock)
            yield part, layer, block


def attentions(model: AnyTransformer) -> dict[PartLayer, Attention]:
    """Every attention of a model by part and layer."""
    by_layer: dict[PartLayer, Attention] = {}
    for part, layer, block in blocks(model):
        by_layer[part, layer] = block.attention
        if isinstance(block, DecoderBlock):
            by_layer["cross", layer] = block.cross_attention
    return by_layer


def norms(model: AnyTransformer) -> dict[Site, nn.Module]:
    """Every norm whose scale is a stage, by that stage."""
    found: dict[Site, nn.Module] = {}
    for part, layer, block in blocks(model):
        found[Site(part, layer, "attn_norm_scale")] = block.attention_norm
        if isinstance(block, DecoderBlock):
            found[Site("cross", layer, "attn_norm_scale")] = block.cross_attention_norm
        found[Site(part, layer, "mlp_norm_scale")] = block.feed_forward_norm
    for part, stack in model.stacks.items():
        found[Site(part, len(stack.blocks) - 1, "final_norm_scale")] = stack.norm
    return {site: norm for site, norm in found.items() if type(norm) in NORM_SCALES}


def adds_bias(attention: Attention) -> bool:
    """Whether a position scheme adds something to the scores."""
    scheme = type(attention.scheme)
    return scheme.bias is not Position.bias or scheme.score is not Position.score


@contextmanager
def listening(model: AnyTransformer, listener: Listener) -> Iterator[None]:
    """Call a listener at every stage of what the model computes meanwhile, in any thread."""
    with _LOCK:
        instrument = _ACTIVE.get(model)
        if instrument is None:
            instrument = _ACTIVE[model] = Instrument(model)
        instrument.listeners.append(listener)
    try:
        with _LOCK:
            instrument.install()
        yield
    finally:
        with _LOCK:
            last = len(instrument.listeners) - 1 - instrument.listeners[::-1].index(listener)
            del instrument.listeners[last]
            if not instrument.listeners:
                instrument.remove()
                _ACTIVE.pop(model, None)


def is_listened(model: AnyTransformer, site: Site | None = None) -> bool:
    """Whether a listener is there, or one that wants this stage."""
    instrument = _ACTIVE.get(model)
    if instrument is None:
        return False
    return site is None or instrument.wanted(site)


class Instrument:
    """The temporary parts of one model, and its listeners."""

    def __init__(self, model: AnyTransformer) -> None:
        self.blocks = list(blocks(model))
        self.norms = norms(model)
        self.listeners: list[Listener] = []
        self.originals: list[tuple[nn.Module, str, Any]] = []
        self.hooks: list[Any] = []
        self.spans: dict[str, Span] = {}  # of the running pass, by part

    def install(self) -> None:
        if self.hooks:
            return
        for part, layer, block in self.blocks:
            self.spans[part] = self.spans["cross"] = Span()
            self.hooks.append(block.register_forward_pre_hook(self._enter_block(part)))
            self._attention((part, layer), block.attention)
            if isinstance(block, DecoderBlock):
                self._attention(("cross", layer), block.cross_attention)
            self._patch(block, "residual", self._residual((part, layer), block))
            self._feed_forward((part, layer), block.feed_forward)
        for site, norm in self.norms.items():
            self._norm(site, norm)

    def remove(self) -> None:
        for hook in self.hooks:
            hook.remove()
        for owner, name, value in reversed(self.originals):
            setattr(owner, name, value)
        self.hooks.clear()
        self.originals.clear()

    def visit(self, site: Site, x: Tensor) -> Tensor:
        for listener in self.listeners:
            if listener.wants(site):
                x = listener.visit(site, x, self.spans[site.part])
        return x

    def wanted(self, site: Site) -> bool:
        return any(listener.wants(site) for listener in self.listeners)

    def _patch(self, owner: nn.Module, name: str, value: object) -> None:
        self.originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _enter_block(self, part: str) -> Any:
        def enter(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            cache: Cache = arguments[2] if len(arguments) > 2 else NO_CACHE
            # The states of a memory are of other segments; positions count within this one.
            start = 0 if isinstance(cache, HiddenMemory) else cache.start
            self.spans[part] = Span(start, cache is NO_CACHE)
            if part == "decoder":
                self.spans["cross"] = self.spans[part]

        return enter

    def _residual(self, key: PartLayer, block: Block | DecoderBlock) -> Residual:
        """The block's residual connection, reporting the residual stream around each sublayer."""
        original: Residual = block.residual
        attention, last = block.attention_norm, block.feed_forward_norm

        def residual(x: Tensor, part: Part, norm: nn.Module, dropout: nn.Module) -> Tensor:
            if norm is last:
                return self.visit(Site(*key, "resid_post"), original(x, part, norm, dropout))
            own = key if norm is attention else ("cross", key[1])
            x = self.visit(Site(*own, "resid_pre"), x)
            return self.visit(Site(*own, "resid_mid"), original(x, part, norm, dropout))

        return residual

    def _kernel(self, key: PartLayer) -> Kernel:
        def kernel(
            q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, dropout: float
        ) -> Tensor:
            for listener in self.listeners:
                mask = listener.mask(key[0], mask)

            def visit(stage: str, x: Tensor) -> Tensor:
                return self.visit(Site(*key, stage), x)

            return attention_stages(q, k, v, mask, bias, visit, dropout)["head_out"]

        return kernel

    def _attention(self, key: PartLayer, attention: Attention) -> None:
        groups = attention.heads // attention.key_heads
        keys: list[Tensor] = []  # of a source they are projected before the first block runs

        def enters(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            return self.visit(Site(*key, "attn_in"), arguments[0]), *arguments[1:]

        def queries_projected(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
            return (self.visit(Site(*key, "q_proj"), arguments[0]),)

        def keys_projected(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            if arguments[0].shape[2]:
                keys[:] = [arguments[0]]  # (B, G, T, D)

        def leaves(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
            if keys and self.wanted(Site(*key, "k_proj")):
                self.visit(Site(*key, "k_proj"), keys[0].repeat_interleave(groups, dim=1))
            keys.clear()
            return self.visit(Site(*key, "attn_out"), output)

        self._patch(attention, "kernel", self._kernel(key))
        self.hooks += [
            attention.register_forward_pre_hook(enters),
            attention.query_norm.register_forward_pre_hook(queries_projected),
            attention.key_norm.register_forward_pre_hook(keys_projected),
            attention.register_forward_hook(leaves),
        ]

    def _norm(self, site: Site, norm: nn.Module) -> None:
        scale_of = NORM_SCALES[type(norm)]

        def normed(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Any:
            if not self.wanted(site):
                return None
            scale = scale_of(module, arguments[0])  # (B, T, 1)
            changed = self.visit(site, scale)
            if changed is scale:
                return None
            bias = getattr(module, "bias", None)
            shift: Tensor | float = 0.0 if bias is None else bias
            return (output - shift) * (scale / changed) + shift

        self.hooks.append(norm.register_forward_hook(normed))

    def _feed_forward(self, key: PartLayer, module: nn.Module) -> None:
        gated = isinstance(module, GatedFeedForward)
        shape: list[int] = []  # (B, T) of this call; the layer itself may use rows

        def enters(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            shape[:] = arguments[0].shape[:-1]

        def visit(stage: str, x: Tensor) -> Tensor:
            return self.visit(Site(*key, stage), x.reshape(*shape, -1)).view_as(x)

        def went_up(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
            if not self.wanted(Site(*key, "mlp_pre")):
                return output
            if not gated:
                return visit("mlp_pre", output).clone()  # the activation may be in place
            gate, value = output.chunk(2, dim=-1)
            return torch.cat((visit("mlp_pre", gate.contiguous()), value), dim=-1)

        def goes_down(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
            return (visit("mlp_hidden", arguments[0]),)

        def leaves(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
            return self.visit(Site(*key, "mlp_out"), output)

        up, down = module.up, module.down
        assert isinstance(up, nn.Module)
        assert isinstance(down, nn.Module)
        self.hooks += [
            module.register_forward_pre_hook(enters),
            up.register_forward_hook(went_up),
            down.register_forward_pre_hook(goes_down),
            module.register_forward_hook(leaves),
        ]


_ACTIVE: WeakKeyDictionary[nn.Module, Instrument] = WeakKeyDictionary()
_LOCK = RLock()  # two threads may instrument one model at once
