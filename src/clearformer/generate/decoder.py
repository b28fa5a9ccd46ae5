"""A model that reads several texts side by side, each as if it were alone.

Texts of different length are padded on the left, so that all of them end at the same place and
grow together. Nobody sees the padding, and positions count from the first real token: the
logits are those of each text alone.

Axes: B batch, T tokens, K tokens with those of the past, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from clearformer.build import resting_pasts
from clearformer.core.cache import KVCache, Past
from clearformer.generate.writer import Writer
from clearformer.inference.fast_decode import Flat, understands
from clearformer.kernels.vocabulary_loss import at_least_float32

CHUNK = 2048  # tokens of a prompt read at a time: more would cost memory and save no time


class Decoder:
    """Reads, and gives the logits of what comes next."""

    def __init__(self, writer: Writer, chunk: int | None = None) -> None:
        self.model = writer.model
        self.config = writer.config
        self.compiled = writer.step
        # A memory reads segments as it did in training; a cache takes what it is given.
        usual = CHUNK if self.config.memory is None else self.config.length
        self.chunk = usual if chunk is None else chunk
        if self.chunk < 1:
            raise ValueError(f"chunk is {chunk}, but it must be at least 1")
        weight = next(p for p in self.model.parameters() if p.is_floating_point())
        self.device, self.dtype = weight.device, weight.dtype
        self.memory: list[Past] = []
        self.flat: Flat | None = None  # the short way for one token, where there is one
        self.keep: Tensor | None = None  # (B, capacity), only if there is padding
        self.length = 0  # tokens read, padding included
        self.capacity = 0

    @property
    def full(self) -> bool:
        """Whether there is no room for another token."""
        return self.length >= self.capacity

    @torch.inference_mode()
    def read(self, texts: Sequence[Sequence[int]], room: int) -> Tensor:
        """Forget everything and read these texts, with room for so many tokens after the
        longest: logits (B, V) of what follows each.
        """
        different = list(dict.fromkeys(map(tuple, texts)))  # samples of one prompt read it once
        logits = self._read(different, room)
        if len(different) < len(texts):
            rows = [different.index(tuple(text)) for text in texts]
            self.select(rows)
            logits = logits[rows]
        # Once it is known how many texts go on: products are chosen by their number.
        caches = [past for past in self.memory if isinstance(past, KVCache)]
        self.flat = Flat(self.model, caches) if understands(self.model, self.memory) else None
        return logits

    def _read(self, texts: Sequence[Sequence[int]], room: int) -> Tensor:
        longest = max(map(len, texts))
        self.capacity = longest + room
        self.memory = resting_pasts(self.config, len(texts), self.capacity, self.dtype, self.device)
        self.length = 0
        lengths = torch.tensor([len(text) for text in texts])
        tokens = torch.zeros(len(texts), longest, dtype=torch.long)
        for row, text in enumerate(texts):
            tokens[row, longest - len(text) :] = torch.tensor(text)
        self.keep = None
        if (lengths < longest).any():
            padding = (longest - lengths)[:, None]
            self.keep = (torch.arange(self.capacity) >= padding).to(self.device)  # (B, capacity)
        # Whole parts from the end, where all texts end: counted from the start, padding would move
        # the borders of a memory's segments, and a text would read otherwise in company.
        short = longest % self.chunk
        first, rest = tokens.to(self.device).split((short, longest - short), dim=1)
        *parts, last = (part for part in (first, *rest.split(self.chunk, dim=1)) if part.shape[1])
        for part in parts:
            self._hidden(part)
        return self._logits(self._hidden(last)[:, -1])

    @torch.inference_mode()
    def step(self, tokens: Sequence[int]) -> Tensor:
        """One more token of each text: logits (B, V) of what follows it."""
        new = torch.tensor(tokens, device=self.device)  # (B,)
        if self.flat is None or self.compiled is not None:
            return self._logits(self._hidden(new[:, None])[:, 0])
        logits = self.flat(new, self._grown(1))
        for past in self.memory:
            past.advance()
        return _for_rules(logits)

    @torch.inference_mode()
    def look(self, tokens: Sequence[int]) -> Tensor:
        """Several more tokens of a single text: logits (T, V) of what follows each of them."""
        if len(tokens) == 1:
            return self.step(tokens)
        return self._logits(self._hidden(torch.tensor([tokens], device=self.device))[0])

    def forget(self, count: int) -> None:
        """Take back the last so many tokens."""
        self.length -= count
        for past in self.memory:
            past.forget(count)

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these texts alone."""
        chosen = torch.tensor(rows, device=self.device)
        for past in self.memory:
            past.select(chosen)
        if self.keep is not None:
            self.keep = self.keep[chosen]

    def _hidden(self, tokens: Tensor) -> Tensor:
        """Hidden states (B, T, E) of tokens (B, T), which are then part of the past."""
        keep = self._grown(tokens.shape[1])
        if self.compiled is not None and tokens.shape[1] == 1:
            hidden = self.compiled(tokens, keep, pasts=self.memory)
        else:
            hidden = self.model.hidden(tokens, keep, pasts=self.memory)
        for past in self.memory:
            past.advance()
        return hidden

    def _grown(self, tokens: int) -> Tensor | None:
        """Count so many more tokens; which keys (B, K) are real, with theirs, if not all are."""
        self.length += tokens
        if self.keep is None:
            return None
        # A memory may hold less than was read: keep has a place for each key, no more.
        first = self.length - tokens - self.memory[0].length
        return self.keep[:, first : self.length]

    def _logits(self, hidden: Tensor) -> Tensor:
        """Logits (..., V) of hidden states (..., E)."""
        return _for_rules(self.model.head(hidden))


def _for_rules(logits: Tensor) -> Tensor:
    """Logits where the rules of choosing work: on the CPU, in float32 at least."""
    return at_least_float32(logits).cpu()
