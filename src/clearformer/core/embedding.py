"""From token numbers to vectors: token + position (+ segment), then scale, norm and dropout.

Axes: B batch, T tokens, K tokens with those of the cache, E model width, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.basic import require_ids, require_shape
from clearformer.core.masks import first_real_token, require_attention_mask
from clearformer.core.positions import NoPosition, Position


class Neighbours(nn.Module):
    """A vector for each token together with the one before it ("not good").

    There are too many pairs for a table, so each goes to one of `buckets` rows by hashing;
    pairs that meet in a row share it. Nothing is known before the first token, and padding
    is nothing.
    """

    def __init__(self, buckets: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, width)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Vectors of whole sequences of tokens (B, T), with attention_mask (B, T)."""
        require_shape("tokens", tokens, ("batch", "tokens"), "pass tokens[None] for one sequence")
        require_attention_mask(attention_mask, *tokens.shape)
        tokens = tokens.long()  # the products below are too large for 32 bits
        before = _shifted(tokens + 1)  # (B, T), 0 = nothing
        if attention_mask is not None:
            before = before * _shifted(attention_mask.long())
        row = (before * 1_000_003 + tokens * 7_919) % (2**31 - 1) % self.table.num_embeddings
        return self.table(row)  # (B, T, E)


class Embedding(nn.Module):
    """The input of a stack (eq. 17, eq. 18: the position is added to the word).

    `length` is the longest sequence that learned positions are made for.
    """

    def __init__(
        self,
        token: nn.Embedding,
        length: int,
        *,
        position: Position = NoPosition(),
        segments: int | None = None,
        neighbours: int | None = None,
        scale: float = 1.0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
        token_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.token = token
        self.scheme = position
        self.max_length = position.max_length(length)
        self.width = token.embedding_dim
        self.position = position.embedding_parameters(length, self.width)
        self.segment = None if segments is None else nn.Embedding(segments, self.width)
        self.neighbours = None if neighbours is None else Neighbours(neighbours, self.width)
        self.scale = scale
        self.norm = nn.Identity() if norm is None else norm
        self.dropout = nn.Dropout(dropout)
        self.token_dropout = nn.Dropout(token_dropout)

    def forward(
        self,
        tokens: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        start: int = 0,
    ) -> Tensor:
        """Vectors of `tokens` (B, T) after `start` others; attention_mask is (B, start + T)."""
        if tokens.dim() != 2 or tokens.shape[1] == 0:
            raise ValueError(
                f"tokens have shape {tuple(tokens.shape)}, but they must be (batch, length) "
                f"with at least one token"
            )
        require_ids("tokens", tokens)
        require_attention_mask(attention_mask, tokens.shape[0], start + tokens.shape[1])
        if start and self.neighbours is not None:
            raise ValueError(
                f"these tokens come after {start} others, but neighbours need the token before "
                f"each: pass whole sequences, or build the embedding without neighbours"
            )
        x = self._words(tokens, attention_mask)  # (B, T, E)
        if self.scale != 1.0:
            x = x * self.scale
        positions = self._positions(tokens, attention_mask, start)
        added = self.scheme.added(positions, self.width, self.position)
        if added is not None:
            # To the dtype first: the device may not have the one in which positions are made.
            x = x + added.to(x.dtype).to(x.device)
        if self.segment is not None:
            segments = torch.zeros_like(tokens) if segments is None else segments
            require_shape("segments", segments, tokens.shape, "give each token a segment")
            require_ids("segments", segments)
            x = x + _look_up(self.segment, segments, "segment id", "table")
        return self.dropout(self.norm(x))  # (B, T, E)

    def _positions(self, tokens: Tensor, attention_mask: Tensor | None, start: int) -> Tensor:
        """Positions (T,), or (B, T) where they count from the first real token."""
        end = start + tokens.shape[1]
        if self.max_length is not None and end > self.max_length:
            raise ValueError(
                f"the sequence has {end} tokens, but the learned positions end at "
                f"{self.max_length}: shorten it, or build the model with length={end}"
            )
        positions = torch.arange(start, end, device=tokens.device)  # (T,)
        if attention_mask is None:
            return positions
        return (positions - first_real_token(attention_mask)[:, None]).clamp(min=0)  # (B, T)

    def _words(self, tokens: Tensor, attention_mask: Tensor | None) -> Tensor:
        """What tokens mean, wherever they stand. A dropped token is gone from its pairs too."""
        x = _look_up(self.token, tokens, "token id", "vocabulary")  # (B, T, E)
        pairs = None  # (B, T, E)
        if self.neighbours is not None:
            pairs = self.neighbours(tokens, attention_mask)
        if self.training and self.token_dropout.p > 0:
            there = self.token_dropout(torch.ones_like(tokens, dtype=x.dtype))  # (B, T)
            x = x * there[:, :, None]
            if pairs is not None:
                pairs = pairs * (there * _shifted(there, first=1))[:, :, None]
        return x if pairs is None else x + pairs


def _look_up(table: nn.Embedding, ids: Tensor, one: str, all_of_them: str) -> Tensor:
    try:
        x: Tensor = table(ids)  # (B, T, E)
    except IndexError:
        low, high = int(ids.min()), int(ids.max())
        wrong = low if low < 0 else high
        raise ValueError(
            f"{one} {wrong} is outside the {all_of_them} of {table.num_embeddings} "
            f"(0 to {table.num_embeddings - 1}): was the text encoded with another "
            f"model's tokenizer?"
        ) from None
    return x


def _shifted(values: Tensor, first: float = 0) -> Tensor:
    """Each place's left neighbour; `first` stands before all."""
    return F.pad(values, (1, 0), value=first)[:, :-1]  # (B, T)
