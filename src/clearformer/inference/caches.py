"""Caches for inference: preallocated, without gradients, with selectable rows.

They are equivalent to those of `core.cache`: `StaticKVCache` to `KVCache`, and `KVMemory` to
`HiddenMemory` as long as the weights do not change.

Axes: B batch, T tokens, K keys, G key heads, D head width.
"""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor

from clearformer import config as c
from clearformer.core.cache import Cache, FrozenKV, require_same_batch


class InferenceCache(Cache):
    """Base class of caches for inference."""

    def forget(self, count: int) -> None:
        """Remove the last `count` committed tokens."""
        raise NotImplementedError

    def select(self, rows: Tensor) -> None:
        """Continue with these sequences (R,) only, in this order; they may repeat."""
        raise NotImplementedError

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Replace the sequences `targets` (R,) by the sequences `sources` (R,)."""
        raise NotImplementedError

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` tokens, if the room is limited."""


class StaticKVCache(InferenceCache):
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
        self.buffer = torch.zeros(size, dtype=dtype, device=device)  # (B, 2, G, capacity, D)
        self.length = self.pending = 0

    @property
    def keys(self) -> Tensor:
        return self.buffer[:, 0]  # (B, G, capacity, D)

    @property
    def values(self) -> Tensor:
        return self.buffer[:, 1]  # (B, G, capacity, D)

    @property
    def capacity(self) -> int:
        return self.buffer.shape[3]

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        _require_no_gradient("StaticKVCache", k)
        batch, _, key_heads, capacity, width = self.buffer.shape
        end = self.length + k.shape[-2]
        # Without this check a single sequence or head would be broadcast to several.
        _require_made_for(
            "the cache", batch=(batch, len(k)), capacity=(capacity, max(end, capacity)),
            key_heads=(key_heads, k.shape[1]), head_width=(width, k.shape[3]),
            dtype=(self.buffer.dtype, k.dtype),
        )  # fmt: skip
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.pending = end - self.length
        return self.keys[:, :, :end], self.values[:, :, :end]

    def advance(self) -> None:
        self.length, self.pending = self.length + self.pending, 0

    def forget(self, count: int) -> None:
        if not 0 <= count <= self.length:
            raise ValueError(f"the cache holds {self.length} tokens: it cannot remove {count}")
        self.length -= count  # what follows will be overwritten

    def select(self, rows: Tensor) -> None:
        self.buffer = self.buffer[rows]

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        filled = self.buffer[:, :, :, : self.length]
        # Twice as fast as filled[targets] = filled[sources], on a CPU.
        filled.index_copy_(0, targets, filled.index_select(0, sources))

    def grow(self, capacity: int) -> None:
        """Extend the cache to `capacity` tokens, with its content."""
        additional = (*self.buffer.shape[:3], capacity - self.capacity, self.buffer.shape[4])
        self.buffer = torch.cat((self.buffer, self.buffer.new_zeros(additional)), dim=3)


class KVMemory(InferenceCache):
    """Keys and values of the last `capacity` tokens, not recomputed for every segment."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.seen = 0  # tokens so far, remembered or not
        self.committed: tuple[Tensor, Tensor] | None = None  # each (B, G, K, D)
        self.pending: tuple[Tensor, Tensor, int] | None = None

    @property
    def length(self) -> int:  # type: ignore[override]
        return 0 if self.committed is None else self.committed[0].shape[2]

    @property
    def start(self) -> int:
        # Cached keys keep their positions, so that positions continue beyond the capacity.
        return self.seen

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        _require_no_gradient("KVMemory", k)
        tokens = k.shape[2]
        if self.committed is not None:
            old_k, old_v = self.committed
            require_same_batch("memory", old_k, k)
            k, v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)
        first = max(0, k.shape[2] - self.capacity)
        self.pending = (k[:, :, first:], v[:, :, first:], tokens)
        return k, v

    def advance(self) -> None:
        if self.pending is not None:
            *_, count = self.pending
            self.committed, self.seen, self.pending = self.pending[:2], self.seen + count, None

    def forget(self, count: int) -> None:
        if count:
            raise ValueError("a KVMemory has dropped earlier tokens and cannot remove a token")

    def select(self, rows: Tensor) -> None:
        if self.committed is not None:
            self.committed = (self.committed[0][rows], self.committed[1][rows])

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        if self.committed is not None:
            k, v = (x.index_copy(0, targets, x[sources]) for x in self.committed)
            self.committed = (k, v)


def inference_caches(
    config: c.AnyModelConfig,
    batch: int,
    capacity: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> list[InferenceCache]:
    """A new cache for each (decoder) layer, for `batch` sequences of up to `capacity` tokens."""
    layers = config.decoder_layers if isinstance(config, c.Seq2SeqConfig) else config.layers
    match config.cache:
        case c.KVCache():
            size = (batch, config.key_heads or config.heads, capacity, config.resolved_head_width)
            return [StaticKVCache(*size, dtype=dtype, device=device) for _ in range(layers)]
        case c.HiddenMemory(length=length):
            return [KVMemory(length) for _ in range(layers)]
        case None:
            raise ValueError(f"{config.name} is not causal and has no cache: run it without one")
        case _:
            assert_never(config.cache)


def select_sources(caches: list[FrozenKV], rows: Tensor) -> None:
    """Continue with these encoded sequences (R,) only, in place; they may repeat."""
    for cache in caches:
        cache.keys, cache.values = cache.keys[rows], cache.values[rows]


def _require_no_gradient(name: str, k: Tensor) -> None:
    if k.requires_grad:
        raise ValueError(
            f"a {name} has no gradient: train with the caches of core, or run the model under "
            f"torch.inference_mode() or torch.no_grad()"
        )


def _require_made_for(noun: str, **settings: tuple[object, object]) -> None:
    """ValueError unless the actual value of each setting is the required one."""
    for name, (has, needs) in settings.items():
        if has != needs:
            raise ValueError(
                f"{noun} was made with {name}={has}, but this step needs {needs}: "
                f"make it with {name}={needs}"
            )
