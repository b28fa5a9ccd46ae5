"""Calling conventions of modules, inferred from the signature and by trial.

Axes: B batch, T tokens, S source tokens, E model width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.verification.signature import (
    Parameter,
    config_of,
    parameters_of,
)

SECOND = ("target", "context", "labels", "other", "stream")  # what a second stream is called
Maker = Callable[[int, int, torch.dtype], Any]  # (batch, length, dtype) to an argument


@dataclass(frozen=True)
class Inputs:
    """The input of a model: tokens (B, T) or vectors (B, T, E), and optionally a source."""

    stream: Tensor
    source: Tensor | None = None

    @property
    def batch(self) -> int:
        return self.stream.shape[0]

    @property
    def length(self) -> int:
        return self.stream.shape[1]

    def with_stream(self, stream: Tensor) -> Inputs:
        return replace(self, stream=stream)

    def rows(self, *rows: int) -> Inputs:
        chosen = list(rows)
        source = None if self.source is None else self.source[chosen]
        return Inputs(self.stream[chosen], source)


@dataclass(frozen=True)
class Form:
    """Which parameter of a forward pass takes which input."""

    stream: str | None  # None: the first positional argument
    same: tuple[str, ...] = ()  # take the same tensor: keys and values of self-attention
    source: str | None = None  # takes the source of an encoder-decoder, or the context
    source_is_tokens: bool = False
    supplied: Mapping[str, Maker] = field(default_factory=dict)  # masks that a caller passes
    time_first: bool = False

    def arguments(self, inputs: Inputs, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
        stream, source = inputs.stream, inputs.source
        if self.time_first:
            stream = stream.transpose(0, 1)
            source = None if source is None else source.transpose(0, 1)
        named: dict[str, Any] = {}
        for name, make in self.supplied.items():
            named[name] = make(inputs.batch, inputs.length, dtype)
        named.update(dict.fromkeys(self.same, stream))
        if self.source is not None:
            named[self.source] = source
        if self.stream is None:
            return [stream], named
        named[self.stream] = stream
        return [], named


def nothing(batch: int, length: int, dtype: torch.dtype) -> None:
    """No mask."""


def lower_triangle(shape: str, hide: bool) -> Maker:
    """A causal mask: True = may see, or True = hidden where `hide`."""

    def make(batch: int, length: int, dtype: torch.dtype) -> Tensor:
        table = torch.ones(length, length, dtype=torch.bool).tril()
        table = ~table if hide else table
        shapes = {
            "TT": (length, length),
            "1TT": (1, length, length),
            "BTT": (batch, length, length),
            "11TT": (1, 1, length, length),
            "B1TT": (batch, 1, length, length),
        }
        return table.expand(shapes[shape]).clone()

    return make


def additive_triangle(batch: int, length: int, dtype: torch.dtype) -> Tensor:
    """A causal mask to be added: 0, and -inf above the diagonal."""
    return torch.full((length, length), -torch.inf, dtype=dtype).triu(1)


def everything_seen(shape: str) -> Maker:
    def make(batch: int, length: int, dtype: torch.dtype) -> Tensor:
        shapes: dict[str, tuple[int, ...]] = {
            "BT": (batch, length),
            "B1T": (batch, 1, length),
            "B11T": (batch, 1, 1, length),
            "BTT": (batch, length, length),
            "B1TT": (batch, 1, length, length),
            "TT": (length, length),
        }
        return torch.ones(shapes[shape], dtype=torch.bool)

    return make


TRIANGLES: tuple[Maker, ...] = (
    *(
        lower_triangle(shape, hide)
        for shape in ("TT", "11TT", "1TT", "BTT", "B1TT")
        for hide in (False, True)
    ),
    additive_triangle,
)


def candidates(model: nn.Module) -> Iterator[Form]:
    """Ways to call a module, the likeliest first."""
    parameters = parameters_of(model.forward)
    if not parameters:
        yield Form(None)
        return
    by_role: dict[str, list[Parameter]] = {}
    for each in parameters:
        by_role.setdefault(each.role, []).append(each)
    names = [each.name for each in parameters]
    first = parameters[0].name
    config = config_of(model)
    if "decoder_input_ids" in names and "input_ids" in names and config.get("is_encoder_decoder"):
        yield Form("decoder_input_ids", source="input_ids", source_is_tokens=True)
        return
    stream = first if "input_ids" not in names else "input_ids"
    required = [each for each in parameters if each.required and each.name != stream]
    masks = _required_masks(required)
    same = tuple(each.name for each in required if each.role in ("key", "value"))
    others = [each for each in required if each.role in SECOND]
    if not others:
        yield Form(stream, same=same, supplied=masks)
        yield from (Form(stream, same=same, supplied=each) for each in _other_masks(required))
        yield from _stream_later(parameters, same)
        return
    (second, *_) = others
    if second.role in ("context", "key", "value"):
        yield Form(stream, same=same, source=second.name, supplied=masks)
    elif second.role in ("other", "stream"):
        # Two streams of different lengths; which of them the outputs belong to is seen by trying.
        yield Form(second.name, source=stream, source_is_tokens=True, supplied=masks)
        yield Form(stream, same=same, source=second.name, supplied=masks)
        yield Form(stream, same=(*same, second.name), supplied=masks)
    for tokens in (True, False):
        yield Form(second.name, source=stream, source_is_tokens=tokens, supplied=masks)
        for other in _other_masks(required):
            yield Form(second.name, source=stream, source_is_tokens=tokens, supplied=other)
    if second.role == "labels":
        yield Form(stream, same=(*same, second.name), supplied=masks)


def _stream_later(parameters: list[Parameter], same: tuple[str, ...]) -> Iterator[Form]:
    """Signatures like (mask, x): the stream is not the first."""
    for each in parameters[1:]:
        if each.role == "stream" and each.required:
            yield Form(each.name, same=same)


def _required_masks(required: list[Parameter]) -> dict[str, Maker]:
    """Masks and positions that must be passed: none of them, if that is allowed."""
    roles = ("padding", "pair_mask", "source_mask", "target_padding", "cache", "positions")
    found: dict[str, Maker] = {each.name: nothing for each in required if each.role in roles}
    for each in required:
        if each.role == "start":
            found[each.name] = lambda batch, length, dtype: 0
    return found


def _other_masks(required: list[Parameter]) -> Iterator[dict[str, Maker]]:
    """Other values for masks that must be passed and may not be None."""
    base = _required_masks(required)
    names = [
        each
        for each in required
        if "mask" in each.role or each.role == "target_padding" or each.role == "padding"
    ]
    if not names:
        return
    for padding, pair in (("B1T", "BTT"), ("B11T", "B1TT"), ("BT", "TT"), ("BT", "BT")):
        made = dict(base)
        for each in names:
            own = padding if each.role in ("source_mask", "padding") else pair
            makers = (
                lower_triangle(own, False) if own in ("BTT", "B1TT", "TT") else everything_seen(own)
            )
            made[each.name] = makers
        yield made


def widths(model: nn.Module) -> list[int]:
    """Widths that vectors may have, the likeliest first."""
    found: list[int] = []
    names = (
        "embed_dim",
        "d_model",
        "n_embd",
        "hidden_size",
        "emb",
        "emb_dim",
        "embedding_dim",
        "dim",
        "width",
        "model_dim",
        "k",
        "l",
        "d",
        "embed_size",
        "features",
        "channels",
    )
    holders = [model, getattr(model, "config", None), getattr(model, "cfg", None)]
    for holder in holders:
        for name in names:
            value = getattr(holder, name, None)
            if type(value) is int:
                found.append(value)
    for part in model.modules():
        if isinstance(part, nn.MultiheadAttention):
            found.append(part.embed_dim)
        elif isinstance(part, nn.Linear):
            found.append(part.in_features)
        elif isinstance(part, nn.LayerNorm):
            found.append(part.normalized_shape[-1])
    for parameter in model.parameters():
        found += [parameter.shape[-1], parameter.shape[0]] if parameter.dim() else []
    return [each for each in dict.fromkeys(found) if 1 < each <= 8192][:8] or [16]


def lengths(model: nn.Module, batch: int) -> list[int]:
    """Lengths to try: first primes that differ from all sizes of the model."""
    taken = {size for each in model.parameters() for size in each.shape} | {batch}
    for part in model.modules():
        taken |= {value for value in vars(part).values() if type(value) is int}
    primes = [each for each in (7, 11, 13, 5) if each not in taken]
    known = [
        value
        for part in model.modules()
        for name, value in vars(part).items()
        if type(value) is int
        and 1 < value <= 64
        and any(w in name for w in ("len", "block", "ctx", "context", "max"))
    ]
    shapes = [
        part.normalized_shape[0]
        for part in model.modules()
        if isinstance(part, nn.LayerNorm) and len(part.normalized_shape) > 1
    ]
    known += shapes
    limit = min((each for each in known if each > 2), default=64)
    fitting = [each for each in primes if each <= limit]
    return list(dict.fromkeys([*fitting, *primes, *shapes, *known, 8, 4, 16, 10, 32, 12, 3]))


def main_output(raw: Any) -> Tensor | None:
    """The logits or hidden states in what a model returned."""
    if isinstance(raw, Tensor):
        return raw
    for name in ("logits", "last_hidden_state", "prediction_logits"):
        value = raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None)
        if isinstance(value, Tensor):
            return value
    values = list(raw.values()) if isinstance(raw, Mapping) else raw
    if isinstance(values, list | tuple):
        tensors = [each for each in values if isinstance(each, Tensor) and each.is_floating_point()]
        return next((each for each in tensors if each.dim() >= 2), tensors[0] if tensors else None)
    return None


def loss_output(raw: Any) -> Tensor | None:
    """The loss in what a model returned."""
    value = raw.get("loss") if isinstance(raw, Mapping) else getattr(raw, "loss", None)
    if isinstance(value, Tensor):
        return value
    if isinstance(raw, Tensor):
        return raw if raw.dim() == 0 else None
    if isinstance(raw, list | tuple):
        return next((x for x in raw if isinstance(x, Tensor) and x.dim() == 0), None)
    return None
