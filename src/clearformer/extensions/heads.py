"""Other ways to pool a sequence, and heads that come with imported checkpoints.

Axes: B batch, T tokens, E model width, C classes.
"""

import torch
from torch import Tensor, nn

from clearformer.core.heads import Head, Pool, mean_pool, require_sequences, token_at


def max_pool(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The largest value of each component over the real tokens; zeros if there are none."""
    require_sequences(hidden, attention_mask)
    if attention_mask is None:
        return hidden.amax(dim=1)  # (B, E)
    lowest = torch.finfo(hidden.dtype).min
    largest = hidden.masked_fill(~attention_mask[:, :, None], lowest).amax(dim=1)  # (B, E)
    return largest.masked_fill(~attention_mask.any(dim=1, keepdim=True), 0.0)


def mean_max_pool(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Mean and maximum, concatenated."""
    pooled = mean_pool(hidden, attention_mask), max_pool(hidden, attention_mask)
    return torch.cat(pooled, dim=-1)  # (B, 2E)


def last_pool(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The last real token: the only one that has seen the whole text in a causal model."""
    require_sequences(hidden, attention_mask)
    if attention_mask is None:
        return hidden[:, -1]  # (B, E)
    return token_at(hidden, last_real_token(attention_mask))


def last_real_token(attention_mask: Tensor) -> Tensor:
    """Index of the last real token of each row (B,); the last of all if there is none."""
    return attention_mask.shape[1] - 1 - attention_mask.flip(1).int().argmax(dim=1)


class TokenClassifier(Head):
    """One class for every token."""

    def __init__(self, width: int, classes: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(width, classes, bias=bias)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.project(self.dropout(hidden))  # (B, T, C)


class Features(nn.Module):
    """One vector for a whole sequence, and nothing after it: what embeddings are made of."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.pool(hidden, attention_mask)  # (B, E)
