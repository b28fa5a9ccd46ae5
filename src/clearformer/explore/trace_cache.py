"""A cache of the last traces by id, each with the layers that were requested last.

A whole trace of a medium model takes a gigabyte. So a cached trace holds the input and small
summaries of all layers; a layer that is requested is computed again, and the last ones stay.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clearformer.explore.library import LoadedModel
from clearformer.explore.limits import MAX_CACHED_TRACE_BYTES, MAX_CACHED_TRACES
from clearformer.explore.stages import AXES, SUMMARIES
from clearformer.explore.trace import Trace, trace
from clearformer.http_server.errors import unknown

FULL_STAGES = tuple(stage for stage in AXES if stage not in SUMMARIES)


@dataclass
class CachedTrace:
    """A trace whose layers are computed on request."""

    id: str
    loaded: LoadedModel
    tokens: Any  # as `trace` takes them
    settings: Mapping[str, Any]
    overview: Trace  # summaries of all layers
    layers: OrderedDict[int, Trace] = field(default_factory=OrderedDict)

    def layer(self, number: int) -> Trace:
        """Every stage of one layer; to be called on the model's worker."""
        # Another model's thread may be evicting these layers at the same time.
        layer = self.layers.pop(number, None)
        if layer is None:
            layer = trace(
                self.loaded.model, self.tokens, FULL_STAGES, layers=[number], **self.settings
            )
        self.layers[number] = layer
        return layer

    def all_layers(self, capture: Sequence[str]) -> Trace:
        """Some stages of all layers, not cached."""
        return trace(self.loaded.model, self.tokens, capture, **self.settings)

    def bytes(self) -> int:
        return size(self.overview) + sum(map(size, list(self.layers.values())))


class TraceCache:
    """The least recently used traces are evicted, by number and by size."""

    def __init__(self) -> None:
        self.traces: OrderedDict[str, CachedTrace] = OrderedDict()
        self.lock = threading.Lock()

    def add(self, loaded: LoadedModel, tokens: Any, settings: Mapping[str, Any]) -> CachedTrace:
        """Run the model and cache the trace; to be called on the model's worker."""
        overview = trace(loaded.model, tokens, tuple(SUMMARIES), **settings)
        cached = CachedTrace(secrets.token_hex(6), loaded, tokens, settings, overview)
        with self.lock:
            self.traces[cached.id] = cached
        self.evict()
        return cached

    def get(self, id: str) -> CachedTrace:
        with self.lock:
            if id not in self.traces:
                raise unknown("trace", id)
            self.traces.move_to_end(id)
            return self.traces[id]

    def evict(self) -> None:
        """Drop the oldest traces, then layers of the others but the last requested ones."""
        with self.lock:
            while len(self.traces) > MAX_CACHED_TRACES:
                self.traces.popitem(last=False)
            total = sum(each.bytes() for each in self.traces.values())
            for each in self.traces.values():
                while total > MAX_CACHED_TRACE_BYTES and len(each.layers) > 1:
                    total -= size(each.layers.popitem(last=False)[1])
            for each in list(self.traces.values())[:-1]:
                if total > MAX_CACHED_TRACE_BYTES:
                    total -= sum(map(size, list(each.layers.values())))
                    each.layers.clear()


def size(trace: Trace) -> int:
    """Bytes of the tensors in a trace; a view of another stage counts in full."""
    return sum(t.nbytes for stages in trace.recorded.values() for t in stages.values())
