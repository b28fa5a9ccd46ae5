"""An encoder in the manner of BERT: sinusoids, a padding mask, norms before or after."""

import math

import torch
from torch import Tensor, nn


def sinusoids(length: int, width: int) -> Tensor:
    position = torch.arange(length).float()[:, None]
    div_term = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(position * div_term)
    table[:, 1::2] = torch.cos(position * div_term)
    return table


class MultiHeadAttention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.d_k = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)

    def split(self, x: Tensor) -> Tensor:
        B, T, _ = x.shape
        return x.reshape(B, T, self.heads, self.d_k).permute(0, 2, 1, 3).reshape(-1, T, self.d_k)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        B, T, E = x.shape
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.bmm(q, k.transpose(1, 2)) / self.d_k**0.5
        if key_padding_mask is not None:
            hidden = key_padding_mask.repeat_interleave(self.heads, dim=0)[:, None]
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = self.drop(scores.softmax(dim=-1))
        y = torch.bmm(weights, v).view(B, self.heads, T, self.d_k)
        return self.out(y.transpose(1, 2).reshape(B, T, E))


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, norm_first: bool) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = MultiHeadAttention(width, heads, dropout)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(dropout)

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.drop(torch.relu(self.fc1(x))))

    def forward(self, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if self.norm_first:
            x = x + self.attention(self.norm1(x), key_padding_mask)
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.attention(x, key_padding_mask))
        return self.norm2(x + self.feed_forward(x))


class PaddedEncoder(nn.Module):
    def __init__(
        self,
        vocab: int = 50,
        width: int = 32,
        heads: int = 4,
        layers: int = 2,
        dropout: float = 0.1,
        norm_first: bool = False,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.register_buffer("pe", sinusoids(64, width))
        self.layers = nn.ModuleList(
            [EncoderLayer(width, heads, dropout, norm_first) for _ in range(layers)]
        )

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        h = self.embed(x) + self.pe[: x.shape[1]]  # type: ignore[index]
        for layer in self.layers:
            h = layer(h, key_padding_mask)
        return h
