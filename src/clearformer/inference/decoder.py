"""Batched decoding with a cache: each text gives the logits it would give alone.

Texts of different length are padded on the left, so that all end at the same position. No token
attends to padding, and positions count from the first real token.

Axes: B batch, T tokens, K cached and new tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from clearformer.config import ModelConfig
from clearformer.core.heads import at_least_float32
from clearformer.core.model import Transformer
from clearformer.inference.caches import InferenceCache, inference_caches
from clearformer.inference.fast_decode import FastDecoder, fast_decoder

Hidden = Callable[..., Tensor]  # as Transformer.hidden
CHUNK = 2048  # prompt tokens per forward pass: more would cost memory and save no time


class Decoder:
    """Reads tokens of a batch, and returns the logits of the next ones.

    `step` is a compiled `model.hidden` for one token; `chunk` is the number of prompt tokens that
    are read at a time.
    """

    def __init__(
        self,
        model: Transformer,
        config: ModelConfig,
        *,
        step: Hidden | None = None,
        chunk: int | None = None,
    ) -> None:
        self.model = model
        self.config = config
        self.compiled = step
        # A memory reads segments as in training; a cache takes any number of tokens.
        usual = CHUNK if self.config.memory is None else self.config.length
        self.chunk = usual if chunk is None else chunk
        if self.chunk < 1:
            raise ValueError(f"chunk is {chunk}, but it must be at least 1")
        weight = next(p for p in self.model.parameters() if p.is_floating_point())
        self.device, self.dtype = weight.device, weight.dtype
        self.memory: list[InferenceCache] = []
        self.fast: FastDecoder | None = None  # a faster step for one token, if the model has one
        self.attention_mask: Tensor | None = (
            None  # (B, capacity), true where a token is real; only if there is padding
        )
        self.length = 0  # tokens read, padding included
        self.capacity = 0

    @property
    def full(self) -> bool:
        """Whether the cache has no room for another token."""
        return self.length >= self.capacity

    @torch.inference_mode()
    def prefill(self, texts: Sequence[Sequence[int]], room: int) -> Tensor:
        """Start over with these texts, and room for so many tokens after the longest.

        Returns the logits (B, V) of the next token of each.
        """
        different = list(dict.fromkeys(map(tuple, texts)))  # equal prompts are read once
        logits = self.read(different, room)
        if len(different) < len(texts):
            rows = [different.index(tuple(text)) for text in texts]
            self.select(rows)
            logits = logits[rows]
        # Created once the batch size is known, which decides its matrix products.
        self.fast = fast_decoder(self.model, self.memory)
        return logits

    @torch.inference_mode()
    def read(self, texts: Sequence[Sequence[int]], room: int) -> Tensor:
        """As `prefill`, for texts that differ and are continued by `extend` or another decoder."""
        longest = max(map(len, texts))
        self.capacity = longest + room
        self.memory, self.fast = [], None  # old caches go before new ones take as much memory
        self.memory = inference_caches(
            self.config, len(texts), self.capacity, self.dtype, self.device
        )
        self.length = 0
        lengths = torch.tensor([len(text) for text in texts])
        tokens = torch.zeros(len(texts), longest, dtype=torch.long)
        for row, text in enumerate(texts):
            tokens[row, longest - len(text) :] = torch.tensor(text)
        self.attention_mask = None
        if (lengths < longest).any():
            padding = (longest - lengths)[:, None]
            real = torch.arange(self.capacity) >= padding  # (B, capacity)
            self.attention_mask = real.to(self.device)
        # Chunks are counted from the end, where all texts end: counted from the start, padding
        # would shift the segments of a memory, and a text would depend on its batch.
        short = longest % self.chunk
        first, rest = tokens.to(self.device).split((short, longest - short), dim=1)
        *parts, last = (part for part in (first, *rest.split(self.chunk, dim=1)) if part.shape[1])
        for part in parts:
            self._hidden(part)
        return self._logits(self._hidden(last)[:, -1])

    @torch.inference_mode()
    def step(self, tokens: Sequence[int]) -> Tensor:
        """Read one more token of each text; return the logits (B, V) of the next."""
        new = torch.tensor(tokens, device=self.device)  # (B,)
        if self.fast is None or self.compiled is not None:
            return self._logits(self._hidden(new[:, None])[:, 0])
        logits = self.fast(new, self._grown(1))
        for cache in self.memory:
            cache.advance()
        return _for_sampling(logits)

    @torch.inference_mode()
    def extend(self, tokens: Sequence[int]) -> Tensor:
        """Read several tokens of a single text; return the logits (T, V) after each of them."""
        if len(tokens) == 1:
            return self.step(tokens)
        return self._logits(self._hidden(torch.tensor([tokens], device=self.device))[0])

    def grow(self) -> None:
        """Make room for twice as many tokens."""
        self.capacity *= 2
        for cache in self.memory:
            cache.grow(self.capacity)

    def rollback(self, count: int) -> None:
        """Remove the last `count` tokens from the cache."""
        self.length -= count
        for cache in self.memory:
            cache.forget(count)

    def select(self, rows: Sequence[int]) -> None:
        """Keep these texts alone, in this order."""
        chosen = torch.tensor(rows, device=self.device)
        for cache in self.memory:
            cache.select(chosen)
        if self.attention_mask is not None:
            self.attention_mask = self.attention_mask[chosen]

    def _hidden(self, tokens: Tensor) -> Tensor:
        """Hidden states (B, T, E) of tokens (B, T), which are then in the cache."""
        attention_mask = self._grown(tokens.shape[1])
        if self.compiled is not None and tokens.shape[1] == 1:
            hidden = self.compiled(tokens, attention_mask, caches=self.memory)
        else:
            hidden = self.model.hidden(tokens, attention_mask, caches=self.memory)
        for cache in self.memory:
            cache.advance()
        return hidden

    def _grown(self, tokens: int) -> Tensor | None:
        """Count new tokens; return which keys (B, K) are real, or None if all are."""
        self.length += tokens
        if self.attention_mask is None:
            return None
        # A memory may hold fewer tokens than were read.
        first = self.length - tokens - self.memory[0].length
        return self.attention_mask[:, first : self.length]

    def _logits(self, hidden: Tensor) -> Tensor:
        """Logits (..., V) of hidden states (..., E)."""
        return _for_sampling(self.model.head(hidden))


def _for_sampling(logits: Tensor) -> Tensor:
    """Logits for sampling: on the CPU, in float32 at least."""
    return at_least_float32(logits).cpu()
