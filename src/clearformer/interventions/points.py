"""Points of the computation: which stage, layer, head and positions to read or change.

    head(2, 3)                  the output of head 3 in layer 2
    attention(2, 3)[5, 1]       how much query 5 attends to key 1 there
    residual(4).at(-1)          the residual stream that enters layer 4, at the last token

Axes: T tokens, Tq queries, Tk keys, H heads, D head width, E model width, F hidden width.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor

from clearformer.did_you_mean import closest
from clearformer.interventions.instrument import (
    AnyTransformer,
    Site,
    Span,
    adds_bias,
    attentions,
    norms,
)
from clearformer.interventions.stages import (
    ATTENTION,
    BLOCK,
    FEED_FORWARD,
    KERNEL,
    NORMS,
    PROJECTIONS,
)

AXES = {**ATTENTION, **PROJECTIONS, **KERNEL, **BLOCK, **FEED_FORWARD, **NORMS}
READ_ONLY = {"k_proj": "k"}  # recorded for each head, but computed for each key head
RESIDUAL = {"pre": "resid_pre", "mid": "resid_mid", "post": "resid_post"}
NORM = {"attention": "attn_norm_scale", "mlp": "mlp_norm_scale", "final": "final_norm_scale"}


class Recorded(Protocol):
    """What a `Trace` offers: the recorded value of a stage."""

    def get(
        self, stage: str, layer: int | None = None, head: int | None = None, part: str = "self"
    ) -> Tensor: ...


@dataclass(frozen=True)
class Point:
    """A place in the computation, by the names that `trace` uses.

    `head`, `attention`, `mlp`, `neuron`, `residual`, `norm` and `point` make one; ``.at(5, -1)``
    narrows it to positions, and ``[query, key]`` narrows attention to one weight.
    """

    stages: tuple[str, ...]
    layer: int | None = None  # None: every layer
    head: int | None = None  # None: every head
    part: str | None = None  # None: the first part that the model has
    positions: tuple[int, ...] | None = None  # None: all; -1 is the last token of a pass
    key: int | None = None
    unit: int | None = None

    def __str__(self) -> str:
        where = [self.part, *self.stages]
        named = {"layer": self.layer, "head": self.head, "unit": self.unit, "key": self.key}
        where += [f"{name} {value}" for name, value in named.items() if value is not None]
        if self.positions is not None:
            where.append(f"at {', '.join(map(str, self.positions))}")
        return " ".join(each for each in where if each)

    def at(self, *positions: int) -> Point:
        """The same point at these positions only; -1 is the last."""
        if not positions:
            raise ValueError("at() needs a position: write .at(5) or .at(0, -1)")
        return replace(self, positions=tuple(_integer("position", each) for each in positions))

    def __getitem__(self, cell: tuple[int, int]) -> Point:
        if self.stages != ("weights",):
            raise ValueError(f"{self} has no cells: write attention(layer, head)[query, key]")
        if not isinstance(cell, tuple) or len(cell) != 2:
            raise ValueError(f"{cell!r} is not a cell: write attention(layer, head)[query, key]")
        query, key = _integer("query", cell[0]), _integer("key", cell[1])
        return replace(self, positions=(query,), key=key)

    def __setitem__(self, cell: object, weight: object) -> None:
        raise ValueError(
            "a point belongs to no model: write edit.attention(2, 3)[5, 1] = 0.9 inside "
            "`with model.edit() as edit`, or model.edit(weights={attention(2, 3)[5, 1]: 0.9})"
        )

    def of(self, trace: Recorded) -> Tensor:
        """The value that a trace recorded here, without the axes that are narrowed to one."""
        given: object = trace
        if not hasattr(given, "get") or isinstance(given, Mapping):
            kind = type(trace).__name__
            raise ValueError(f"of() takes a trace, but got a {kind}: pass model.trace(text)")
        if len(self.stages) > 1:
            raise ValueError(f"{self} are several stages: choose one, as in norm(0, 'mlp')")
        (stage,), layer = self.stages, self.layer
        if layer is None:
            raise ValueError(f"{self} is of every layer: choose one, as in layer=0")
        x = trace.get(stage, layer, None, self.part or "self")[None]  # (1, ...)
        index, dropped = self.region(stage, x, Span())
        return x[index][0].squeeze([axis - 1 for axis in dropped])

    # --- within a model ----------------------------------------------------------------------

    def sites(self, model: AnyTransformer) -> list[Site]:
        """Where this is in a model; a ValueError if it is nowhere."""
        places = attentions(model)
        parts = list(dict.fromkeys(part for part, _ in places))
        part = self.part or parts[0]
        if part not in parts:
            raise ValueError(f"there is no part {part!r} in this model: there is {_or(parts)}")
        count = 1 + max(layer for each, layer in places if each == part)
        if self.layer is not None and not 0 <= self.layer < count:
            raise ValueError(f"layer is {self.layer}, but the model has layers 0 to {count - 1}")
        layers = range(count) if self.layer is None else [self.layer]
        for layer in layers:
            _require_index("head", self.head, places[part, layer].heads)
        for stage in self.stages:
            if part == "cross" and stage in (*FEED_FORWARD, "resid_post", "mlp_norm_scale"):
                raise ValueError(f"cross-attention has no {stage}: choose part='decoder'")
        sites = [Site(part, layer, stage) for layer in layers for stage in self.stages]
        measured = norms(model)
        biased = adds_bias(places[part, 0])
        present = [
            each
            for each in sites
            if (each.stage not in NORMS or each in measured) and (each.stage != "bias" or biased)
        ]
        if not present:
            where = "" if self.layer is None else f" in layer {self.layer}"
            raise ValueError(
                f"there is no {' or '.join(self.stages)} in {part}{where} of this model: look at "
                f"what model.trace(text) records there"
            )
        return present

    def region(
        self, stage: str, x: Tensor, span: Span
    ) -> tuple[tuple[slice | list[int], ...], list[int]]:
        """The index of the region in x (B, ...), and the axes of it that have one place.

        A list of positions is empty if the pass does not read them.
        """
        index: list[slice | list[int]] = [slice(None)]
        dropped: list[int] = []
        axes = AXES[stage].split(",")
        for number, axis in enumerate(axes, start=1):
            size = x.shape[number]
            chosen: int | None = None
            if axis == "H":
                chosen = self.head
            elif axis == "F" and self.unit is not None:
                _require_index("unit", self.unit, size)
                chosen = self.unit
            elif axis == "Tk" and "Tq" in axes and self.key is not None:
                chosen = _in_pass("key", self.key, size, Span(0, span.whole))
                if chosen is None:
                    index.append([])
                    continue
            elif axis.startswith("T") and self.positions is not None:
                own = Span(0, span.whole) if axis == "Tk" else span
                at = [_in_pass("position", each, size, own) for each in self.positions]
                index.append([each for each in at if each is not None])
                dropped += [number] if len(self.positions) == 1 else []
                continue
            index.append(slice(None) if chosen is None else slice(chosen, chosen + 1))
            dropped += [] if chosen is None else [number]
        return tuple(index), dropped


def head(layer: int, head: int, part: str | None = None) -> Point:
    """The output of one attention head, before W_o: `head_out`."""
    return _checked(Point(("head_out",), layer, head, part))


def attention(layer: int | None = None, head: int | None = None, part: str | None = None) -> Point:
    """The attention weights of one head, of a layer, or of all layers: `weights`."""
    return _checked(Point(("weights",), layer, head, part))


def mlp(layer: int | None = None, part: str | None = None) -> Point:
    """What the feed-forward layer adds to the residual stream: `mlp_out`."""
    return _checked(Point(("mlp_out",), layer, None, part))


def neuron(layer: int, unit: int, part: str | None = None) -> Point:
    """One hidden unit of a feed-forward layer, after the activation: `mlp_hidden`."""
    return _checked(Point(("mlp_hidden",), layer, None, part, unit=unit))


def residual(layer: int | None = None, at: str = "pre", part: str | None = None) -> Point:
    """The residual stream before a layer, between its sublayers ("mid") or after it ("post")."""
    if at not in RESIDUAL:
        raise ValueError(f"at is {at!r}, but it must be pre, mid or post")
    return _checked(Point((RESIDUAL[at],), layer, None, part))


def norm(layer: int | None = None, which: str | None = None, part: str | None = None) -> Point:
    """What the norms of a layer divide each token by; `which` is attention, mlp or final."""
    if which is not None and which not in NORM:
        raise ValueError(f"which is {which!r}, but it must be attention, mlp or final")
    stages = tuple(NORM.values()) if which is None else (NORM[which],)
    return _checked(Point(stages, layer, None, part))


def point(
    stage: str, layer: int | None = None, head: int | None = None, part: str | None = None
) -> Point:
    """Any stage by the name under which `trace` records it, such as ``"attn_out"``."""
    if stage not in AXES:
        guess = closest(stage, AXES)
        hint = "" if guess is None else f"; did you mean {guess!r}?"
        raise ValueError(f"there is no stage {stage!r}: there are {', '.join(AXES)}{hint}")
    if head is not None and not AXES[stage].startswith("H"):
        raise ValueError(f"{stage} has no heads: leave head out")
    return _checked(Point((stage,), layer, head, part))


def _checked(point: Point) -> Point:
    """Refuse what no model has; the rest is known once the model is."""

    def index(name: str, value: Any) -> int | None:
        return None if value is None else _integer(name, value, " from 0")

    return replace(
        point,
        layer=index("layer", point.layer),
        head=index("head", point.head),
        unit=index("unit", point.unit),
    )


def _integer(name: str, value: Any, more: str = "") -> int:
    """An integer, also of numpy or torch."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r:.60}, but it must be an integer{more}") from None


def _require_index(name: str, value: int | None, count: int) -> None:
    if value is not None and not 0 <= value < count:
        raise ValueError(f"{name} is {value}, but the layer has {name}s 0 to {count - 1}")


def _in_pass(name: str, position: int, size: int, span: Span) -> int | None:
    """The index of a position in a pass; None if the pass does not read it."""
    index = position + size if position < 0 else position - span.start
    if 0 <= index < size:
        return index
    if not span.whole and position >= 0:
        return None  # it is in the cache, or not written yet
    raise ValueError(f"{name} is {position}, but there are {name}s 0 to {size - 1}")


def _or(words: list[str]) -> str:
    return ", ".join(words[:-1]) + (" and " if words[1:] else "") + words[-1]
