"""Traces that pages look at: the last few, by id, and of each the layers asked for last.

A whole trace of a middling model is a gigabyte. So only the small pictures of all layers are
kept, with the input; a layer that is asked for is computed again, and the last ones stay.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from clearformer.explore.errors import unknown
from clearformer.explore.library import Opened
from clearformer.explore.limits import KEPT_TRACE_BYTES, KEPT_TRACES
from clearformer.explore.stages import AXES, REDUCED
from clearformer.explore.trace import Trace, trace

WHOLE = tuple(stage for stage in AXES if stage not in REDUCED)


@dataclass
class Kept:
    """A trace that can be asked for any of its layers."""

    id: str
    opened: Opened
    tokens: Any  # as `trace` takes them
    settings: Mapping[str, Any]
    overview: Trace  # small pictures of all layers
    layers: OrderedDict[int, Trace] = field(default_factory=OrderedDict)

    def layer(self, number: int) -> Trace:
        """Every stage of one layer; to be called on the model's worker."""
        # Another model's thread may be making room among these layers at the same time.
        found = self.layers.pop(number, None)
        if found is None:
            found = trace(self.opened.subject, self.tokens, WHOLE, layers=[number], **self.settings)
        self.layers[number] = found
        return found

    def all_layers(self, capture: Sequence[str]) -> Trace:
        """Some stages of all layers, not kept."""
        return trace(self.opened.subject, self.tokens, capture, **self.settings)

    def bytes(self) -> int:
        return size(self.overview) + sum(map(size, list(self.layers.values())))


class KeptTraces:
    """The last used traces, within a number and a size."""

    def __init__(self) -> None:
        self.kept: OrderedDict[str, Kept] = OrderedDict()
        self.lock = threading.Lock()

    def make(self, opened: Opened, tokens: Any, settings: Mapping[str, Any]) -> Kept:
        """Run the model and keep what it gave; to be called on the model's worker."""
        overview = trace(opened.subject, tokens, tuple(REDUCED), **settings)
        made = Kept(secrets.token_hex(6), opened, tokens, settings, overview)
        with self.lock:
            self.kept[made.id] = made
        self.tidy()
        return made

    def find(self, id: str) -> Kept:
        with self.lock:
            if id not in self.kept:
                raise unknown("trace", id)
            self.kept.move_to_end(id)
            return self.kept[id]

    def tidy(self) -> None:
        """Let the oldest go; of the newest, the layers that were not asked for last."""
        with self.lock:
            while len(self.kept) > KEPT_TRACES:
                self.kept.popitem(last=False)
            total = sum(each.bytes() for each in self.kept.values())
            for each in self.kept.values():
                while total > KEPT_TRACE_BYTES and len(each.layers) > 1:
                    total -= size(each.layers.popitem(last=False)[1])
            for each in list(self.kept.values())[:-1]:
                if total > KEPT_TRACE_BYTES:
                    total -= sum(map(size, list(each.layers.values())))
                    each.layers.clear()


def size(found: Trace) -> int:
    """Bytes of what a trace holds; a view of another stage is counted as its own."""
    tensors: list[Tensor] = [t for place in found.recorded.values() for t in place.values()]
    return sum(t.numel() * t.element_size() for t in tensors)
