"""Where keys and values come from, besides the tokens at hand.

A past lives outside the model and is handed in, one for each layer. `Nothing` is the usual
case. `KVCache` remembers keys and values while a text grows, `FrozenKV` holds those of another
sequence (cross-attention), `HiddenMemory` the hidden states of earlier segments
(Transformer-XL), `KVMemory` what these give once nothing is learned any more.

Writing has two phases. `read` uses what is committed and keeps what is new as pending;
`advance` commits it, once the step is over: after the forward pass when generating, after the
backward pass when training. A past that updated itself while being read would feed activation
checkpointing, which runs the forward pass twice, another memory the second time: wrong
gradients, and no error.

Axes: B batch, T tokens, K keys, G key heads, D head width, E model width.
"""

from typing import Protocol

import torch
from torch import Tensor

from clearformer.core.basic import require_made_for

Heads = tuple[Tensor, Tensor, Tensor]  # q (B, H, T, D), k and v (B, G, K, D)


class Projection(Protocol):
    """What a past may ask of an attention: vectors (B, T, E) to heads, placed from `start`."""

    def queries(self, x: Tensor) -> Tensor: ...
    def keys_values(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]: ...
    def queries_keys_values(self, x: Tensor, start: int) -> Heads: ...


class Cache:
    """Base of all caches, and the past of a sequence that has none."""

    length: int = 0  # keys that come before those of the tokens at hand

    def read(self, x: Tensor, project: Projection) -> Heads:
        """Queries of x, and every key and value they may meet."""
        return project.queries_keys_values(x, start=0)

    def advance(self) -> None:
        """Commit what the last `read` left pending."""

    def forget(self, count: int) -> None:
        """Take back the last `count` committed tokens."""

    def select(self, rows: Tensor) -> None:
        """Go on with these sequences (R,) alone, in this order; one may come several times."""

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Each of the sequences `targets` becomes what its one of `sources` was; each (R,)."""


class NoCache(Cache):
    """No past: keys and values are those of the tokens at hand."""


NO_CACHE = NoCache()


class KVCache(Cache):
    """Keys and values of all tokens so far, preallocated, written in place."""

    def __init__(
        self,
        batch: int,
        key_heads: int,
        capacity: int,
        head_width: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        # Keys and values are one tensor, so that a step writes and reads both with one call.
        size = (batch, 2, key_heads, capacity, head_width)
        self.room = torch.zeros(size, dtype=dtype, device=device)  # (B, 2, G, capacity, D)
        self.length = self.pending = 0

    @property
    def keys(self) -> Tensor:
        return self.room[:, 0]  # (B, G, capacity, D)

    @property
    def values(self) -> Tensor:
        return self.room[:, 1]  # (B, G, capacity, D)

    def read(self, x: Tensor, project: Projection) -> Heads:
        q, k, v = project.queries_keys_values(x, start=self.length)
        if k.requires_grad:
            raise ValueError(
                "a KVCache is written in place and carries no gradient: "
                "run the model under torch.inference_mode() or torch.no_grad()"
            )
        held, _, key_heads, capacity, width = self.room.shape
        end = self.length + k.shape[-2]
        # Writing one sequence, or one head, into the room of several would succeed, and repeat it.
        require_made_for(
            "the cache", batch=(held, len(k)), capacity=(capacity, max(end, capacity)),
            key_heads=(key_heads, k.shape[1]), head_width=(width, k.shape[3]),
            dtype=(self.room.dtype, k.dtype),
        )  # fmt: skip
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.pending = end - self.length
        return q, self.keys[:, :, :end], self.values[:, :, :end]

    def advance(self) -> None:
        self.length, self.pending = self.length + self.pending, 0

    def forget(self, count: int) -> None:
        if not 0 <= count <= self.length:
            raise ValueError(f"the cache holds {self.length} tokens: it cannot take back {count}")
        self.length -= count  # what stands behind the length is written over

    def select(self, rows: Tensor) -> None:
        self.room = self.room[rows]

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        filled = self.room[:, :, :, : self.length]
        # Twice as fast as filled[targets] = filled[sources], on a CPU.
        filled.index_copy_(0, targets, filled.index_select(0, sources))

    def extend(self, capacity: int) -> None:
        """Room for `capacity` tokens; what is there stays."""
        more = (*self.room.shape[:3], capacity - self.room.shape[3], self.room.shape[4])
        self.room = torch.cat((self.room, self.room.new_zeros(more)), dim=3)


class FrozenKV(Cache):
    """Keys and values of another sequence, made once: cross-attention's only source.

    Several sequences may look at one source (the beams of a search): they come one after the
    other in the batch, and their queries meet the keys together, which are not copied.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys
        self.values = values

    def read(self, x: Tensor, project: Projection) -> Heads:
        q, sources = project.queries(x), self.keys.shape[0]
        if q.shape[0] != sources:
            if len(q) % max(sources, 1):
                raise ValueError(f"{len(q)} sequences for {sources} sources: pass as many for each")
            q = q.unflatten(0, (sources, -1)).transpose(1, 2).flatten(2, 3)  # (B, H, beams*T, D)
        return q, self.keys, self.values

    def select(self, rows: Tensor) -> None:
        self.keys, self.values = self.keys[rows], self.values[rows]


class HiddenMemory(Cache):
    """The last `capacity` hidden states that entered a layer, as they were, without gradient."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.states: Tensor | None = None  # (B, K, E)
        self.pending: Tensor | None = None

    @property
    def length(self) -> int:  # type: ignore[override]
        return 0 if self.states is None else self.states.shape[1]

    def read(self, x: Tensor, project: Projection) -> Heads:
        q, k, v = project.queries_keys_values(x, start=self.length)
        if self.states is None:
            self.pending = self._latest(x, x[:, :0])
            return q, k, v
        if self.states.shape[0] != x.shape[0] or self.states.shape[2] != x.shape[2]:
            raise ValueError(
                f"the memory holds {self.states.shape[0]} sequences of width "
                f"{self.states.shape[2]}, but the input has {x.shape[0]} of width {x.shape[2]}: "
                f"start with a new memory"
            )
        old_k, old_v = project.keys_values(self.states, start=0)
        self.pending = self._latest(x, self.states)
        return q, torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)

    def _latest(self, x: Tensor, before: Tensor) -> Tensor:
        """The last `capacity` of both; a segment as long as that needs nothing from before."""
        kept = x[:, max(0, x.shape[1] - self.capacity) :].detach()
        missing = min(self.capacity - kept.shape[1], before.shape[1])
        return torch.cat((before[:, before.shape[1] - missing :], kept), dim=1) if missing else kept

    def advance(self) -> None:
        if self.pending is not None:
            self.states, self.pending = self.pending, None

    def forget(self, count: int) -> None:
        if count:
            raise ValueError(
                "a HiddenMemory has dropped what came before and cannot take a token back"
            )

    def select(self, rows: Tensor) -> None:
        self.states = None if self.states is None else self.states[rows]

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        if self.states is not None:
            # Into a copy: the states are a view of what went through the model.
            self.states = self.states.index_copy(0, targets, self.states[sources])


class KVMemory(Cache):
    """The keys and values of the last `capacity` tokens.

    What a `HiddenMemory` gives while the weights rest, without projecting every state again for
    every segment; without a gradient, so only for reading and writing texts.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.seen = 0  # tokens so far, remembered or not
        self.committed: tuple[Tensor, Tensor] | None = None  # each (B, G, K, D)
        self.pending: tuple[Tensor, Tensor, int] | None = None

    @property
    def length(self) -> int:  # type: ignore[override]
        return 0 if self.committed is None else self.committed[0].shape[2]

    def read(self, x: Tensor, project: Projection) -> Heads:
        # Kept keys stay where they were placed, so places go on counting past the capacity.
        q, k, v = project.queries_keys_values(x, start=self.seen)
        if k.requires_grad:
            raise ValueError(
                "a KVMemory carries no gradient: train with a HiddenMemory, or run the model under "
                "torch.inference_mode() or torch.no_grad()"
            )
        if self.committed is not None:
            old_k, old_v = self.committed
            if old_k.shape[0] != k.shape[0]:
                raise ValueError(
                    f"the memory holds {old_k.shape[0]} sequences, but the input has {k.shape[0]}: "
                    f"start with a new memory"
                )
            k, v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)
        first = max(0, k.shape[2] - self.capacity)
        self.pending = (k[:, :, first:], v[:, :, first:], x.shape[1])
        return q, k, v

    def advance(self) -> None:
        if self.pending is not None:
            *_, count = self.pending
            self.committed, self.seen, self.pending = self.pending[:2], self.seen + count, None

    def forget(self, count: int) -> None:
        if count:
            raise ValueError("a KVMemory has dropped what came before and cannot take a token back")

    def select(self, rows: Tensor) -> None:
        if self.committed is not None:
            self.committed = (self.committed[0][rows], self.committed[1][rows])

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        if self.committed is not None:
            k, v = (x.index_copy(0, targets, x[sources]) for x in self.committed)
            self.committed = (k, v)
