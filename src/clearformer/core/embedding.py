"""From token numbers to vectors: token + position (+ segment), then scale, norm and dropout.

Axes: B batch, T tokens, K tokens with those of the past, E model width, V vocabulary.
"""

import torch
from torch import Tensor, nn

from clearformer.core.kernels import first_kept


class Embedding(nn.Module):
    """The input of a stack (eq. 17, eq. 18: the position is added to the word)."""

    def __init__(
        self,
        token: nn.Embedding,
        *,
        position: nn.Module | None = None,
        segment: nn.Embedding | None = None,
        scale: float = 1.0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.token = token
        self.position = position
        self.segment = segment
        self.scale = scale
        self.norm = nn.Identity() if norm is None else norm
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        tokens: Tensor,
        keep: Tensor | None = None,
        segments: Tensor | None = None,
        start: int = 0,
    ) -> Tensor:
        """Vectors of `tokens` (B, T), which come after `start` others; keep is (B, start + T)."""
        if tokens.dim() != 2 or tokens.shape[1] == 0:
            raise ValueError(
                f"tokens have shape {tuple(tokens.shape)}, but they must be (batch, length) "
                f"with at least one token"
            )
        x = self._look_up(tokens)  # (B, T, E)
        if self.scale != 1.0:
            x = x * self.scale
        if self.position is not None:
            end = start + tokens.shape[1]
            places = torch.arange(start, end, device=tokens.device)  # (T,)
            if keep is not None:
                places = (places - first_kept(keep)[:, None]).clamp(min=0)  # (B, T)
            x = x + self.position(places, end).to(x.dtype)
        if self.segment is not None:
            segments = torch.zeros_like(tokens) if segments is None else segments
            x = x + self.segment(segments)
        return self.dropout(self.norm(x))  # (B, T, E)

    def _look_up(self, tokens: Tensor) -> Tensor:
        try:
            x: Tensor = self.token(tokens)
        except IndexError:
            low, high = int(tokens.min()), int(tokens.max())
            wrong = low if low < 0 else high
            raise ValueError(
                f"token id {wrong} is outside the vocabulary of {self.token.num_embeddings} "
                f"(0 to {self.token.num_embeddings - 1}): was the text encoded with another "
                f"model's tokenizer?"
            ) from None
        return x
