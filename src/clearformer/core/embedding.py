"""From token numbers to vectors: token + position (+ segment), then scale, norm and dropout.

Axes: B batch, T tokens, K tokens with those of the cache, E model width, V vocabulary.
"""

import torch
from torch import Tensor, nn

from clearformer.core.basic import require_ids, require_sequences, require_shape
from clearformer.core.masks import first_real_token, require_attention_mask
from clearformer.core.positions import NoPosition, Position


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
        scale: float = 1.0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.token = token
        self.scheme = position
        self.max_length = position.max_length(length)
        self.width = token.embedding_dim
        self.position = position.embedding_parameters(length, self.width)
        self.segment = None if segments is None else nn.Embedding(segments, self.width)
        self.scale = scale
        self.norm = nn.Identity() if norm is None else norm
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        tokens: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        start: int = 0,
    ) -> Tensor:
        """Vectors of `tokens` (B, T) after `start` others; attention_mask is (B, start + T)."""
        require_sequences("tokens", tokens, ("batch", "tokens"))
        require_ids("tokens", tokens)
        require_attention_mask(attention_mask, tokens.shape[0], start + tokens.shape[1])
        x = self.words(tokens, attention_mask, start)  # (B, T, E)
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

    def words(self, tokens: Tensor, attention_mask: Tensor | None, start: int) -> Tensor:
        """Vectors of the tokens (B, T, E), wherever they stand; a subclass may add their pairs."""
        return _look_up(self.token, tokens, "token id", "vocabulary")


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
