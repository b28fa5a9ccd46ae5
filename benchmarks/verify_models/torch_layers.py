"""Models made of torch's own layers: nn.TransformerEncoder and nn.MultiheadAttention."""

import torch
from torch import Tensor, nn


class TorchLanguageModel(nn.Module):
    """A causal language model around nn.TransformerEncoder."""

    def __init__(self, vocab: int = 50, width: int = 32, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.pos = nn.Parameter(torch.randn(1, 32, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, heads, 64, dropout=0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        T = tokens.shape[1]
        x = self.embed(tokens) + self.pos[:, :T]
        mask = torch.ones(T, T, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.encoder(x, mask=mask, src_key_padding_mask=padding_mask)
        return self.head(x)


class TorchEncoder(nn.Module):
    """An encoder of texts around nn.TransformerEncoder, with a padding mask."""

    def __init__(self, vocab: int = 50, width: int = 32, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.pos = nn.Embedding(32, width)
        layer = nn.TransformerEncoderLayer(width, heads, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.embed(tokens) + self.pos(torch.arange(tokens.shape[1], device=tokens.device))
        hidden = None if attention_mask is None else attention_mask == 0
        return self.encoder(x, src_key_padding_mask=hidden)


class TorchAttention(nn.Module):
    """A causal attention layer around nn.MultiheadAttention."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.causal = True
        self.inner = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        T = x.shape[1]
        mask = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        y, _ = self.inner(x, x, x, attn_mask=mask, need_weights=False)
        return y
