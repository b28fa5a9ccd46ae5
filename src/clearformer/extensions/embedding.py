"""An embedding of tokens and of pairs of neighbours, with dropout of whole tokens.

Axes: B batch, T tokens, E model width.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.basic import require_shape
from clearformer.core.embedding import Embedding
from clearformer.core.masks import require_attention_mask


class Neighbours(nn.Module):
    """A vector for each token together with the one before it ("not good").

    There are too many pairs for a table, so each is hashed to one of `buckets` rows; colliding
    pairs share a row. The first token has no pair, nor has one after padding.
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


class NeighbourEmbedding(Embedding):
    """An embedding that adds a vector for each pair of `neighbours`, in that many buckets.

    In training `token_dropout` drops whole tokens, so that the model does not rely on single words.
    """

    def __init__(
        self,
        token: nn.Embedding,
        length: int,
        *,
        neighbours: int | None = None,
        token_dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(token, length, **options)
        norm = self.norm
        del self.norm
        self.neighbours = None if neighbours is None else Neighbours(neighbours, self.width)
        self.norm = norm  # after the others: optimizers number the parameters in this order
        self.token_dropout = nn.Dropout(token_dropout)

    def words(self, tokens: Tensor, attention_mask: Tensor | None, start: int) -> Tensor:
        """Vectors of the tokens without positions; token dropout also drops their pairs."""
        x = super().words(tokens, attention_mask, start)  # (B, T, E)
        pairs = None  # (B, T, E)
        if self.neighbours is not None:
            if start:
                raise ValueError(
                    f"these tokens come after {start} others, but neighbours need the token before "
                    f"each: pass whole sequences, or build the embedding without neighbours"
                )
            pairs = self.neighbours(tokens, attention_mask)
        if self.training and self.token_dropout.p > 0:
            there = self.token_dropout(torch.ones_like(tokens, dtype=x.dtype))  # (B, T)
            x = x * there[:, :, None]
            if pairs is not None:
                pairs = pairs * (there * _shifted(there, first=1))[:, :, None]
        return x if pairs is None else x + pairs


def _shifted(values: Tensor, first: float = 0) -> Tensor:
    """The left neighbour of each position; `first` precedes the first one."""
    return F.pad(values, (1, 0), value=first)[:, :-1]  # (B, T)
