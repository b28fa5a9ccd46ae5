"""Caches: keys and values of earlier tokens, one cache for each layer.

A cache lives outside the model and is passed in. `NO_CACHE` is the usual case. `KVCache` holds
the keys and values of a growing text, `HiddenMemory` the hidden states of earlier segments
(Transformer-XL), `FrozenKV` the keys and values of another sequence (cross-attention).

Writing has two phases. The forward pass uses what is committed and leaves what is new pending;
`advance` commits it once the step is over. Activation checkpointing runs the forward pass twice:
a cache that updated itself while it is read would then give wrong gradients and no error.

Axes: B batch, T tokens, K keys, G key heads, D head width, E model width.
"""

import torch
from torch import Tensor


class Cache:
    """Base of all caches. It holds nothing: keys and values are those of the current tokens."""

    length: int = 0  # keys before those of the current tokens

    @property
    def start(self) -> int:
        """The position of the first current token."""
        return self.length

    def sources(self, x: Tensor) -> tuple[Tensor, ...]:
        """The hidden states (B, *, E) whose keys and values are to be computed, x the last."""
        return (x,)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values (B, G, K, D), given those of the sources."""
        return k, v

    def advance(self) -> None:
        """Commit what the last forward pass left pending."""


NO_CACHE = Cache()


class KVCache(Cache):
    """Keys and values of all tokens so far."""

    def __init__(self) -> None:
        self.committed: tuple[Tensor, Tensor] | None = None  # each (B, G, K, D)
        self.pending: tuple[Tensor, Tensor] | None = None

    @property
    def length(self) -> int:  # type: ignore[override]
        return 0 if self.committed is None else self.committed[0].shape[2]

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.committed is not None:
            require_same_batch("cache", self.committed[0], k)
            old_k, old_v = self.committed
            k, v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)
        self.pending = k, v
        return k, v

    def advance(self) -> None:
        if self.pending is not None:
            self.committed, self.pending = self.pending, None


class HiddenMemory(Cache):
    """The last `capacity` hidden states that entered a layer, detached."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.states: Tensor | None = None  # (B, K, E)
        self.pending: Tensor | None = None

    @property
    def length(self) -> int:  # type: ignore[override]
        return 0 if self.states is None else self.states.shape[1]

    def sources(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.states is None:
            self.pending = self._latest(x, x[:, :0])
            return (x,)
        require_same_batch("memory", self.states, x)
        self.pending = self._latest(x, self.states)
        return self.states, x

    def _latest(self, x: Tensor, before: Tensor) -> Tensor:
        """The last `capacity` of both; a segment of that length needs no earlier states."""
        kept = x[:, max(0, x.shape[1] - self.capacity) :].detach()
        missing = min(self.capacity - kept.shape[1], before.shape[1])
        return torch.cat((before[:, before.shape[1] - missing :], kept), dim=1) if missing else kept

    def advance(self) -> None:
        if self.pending is not None:
            self.states, self.pending = self.pending, None


class FrozenKV(Cache):
    """Keys and values of another sequence, computed once: the only ones of cross-attention."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys
        self.values = values

    def sources(self, x: Tensor) -> tuple[Tensor, ...]:
        return ()

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        require_same_batch("source", self.keys, k)
        return self.keys, self.values


def require_same_batch(what: str, held: Tensor, given: Tensor) -> None:
    """Refuse another number of sequences, or sequences of another width."""
    if held.shape[0] != given.shape[0] or held.shape[-1] != given.shape[-1]:
        raise ValueError(
            f"the {what} holds {held.shape[0]} sequences of width {held.shape[-1]}, but the input "
            f"has {given.shape[0]} of width {given.shape[-1]}: start with a new {what}"
        )
