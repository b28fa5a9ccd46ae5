"""An encoder-decoder whose masks are passed by its caller or made inside."""

import math

import torch
from torch import Tensor, nn


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, drop: nn.Module) -> Tensor:
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    return torch.matmul(drop(scores.softmax(dim=-1)), v)


class MultiHeaded(nn.Module):
    def __init__(self, h: int, d_model: int, dropout: float) -> None:
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])
        self.drop = nn.Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        B = query.size(0)
        mask = None if mask is None else mask.unsqueeze(1)
        q, k, v = (
            each(x).view(B, -1, self.h, self.d_k).transpose(1, 2)
            for each, x in zip(self.linears, (query, key, value), strict=False)
        )
        x = attention(q, k, v, mask, self.drop)
        x = x.transpose(1, 2).contiguous().view(B, -1, self.h * self.d_k)
        return self.linears[-1](x)


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(self.drop(self.w_1(x).relu()))


class EncoderBlock(nn.Module):
    def __init__(self, d_model: int, h: int, dropout: float) -> None:
        super().__init__()
        self.self_attn = MultiHeaded(h, d_model, dropout)
        self.ff = FeedForward(d_model, 2 * d_model, dropout)
        self.norms = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(2)])

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        h = self.norms[0](x)
        x = x + self.self_attn(h, h, h, mask)
        return x + self.ff(self.norms[1](x))


class DecoderBlock(nn.Module):
    def __init__(self, d_model: int, h: int, dropout: float) -> None:
        super().__init__()
        self.self_attn = MultiHeaded(h, d_model, dropout)
        self.src_attn = MultiHeaded(h, d_model, dropout)
        self.ff = FeedForward(d_model, 2 * d_model, dropout)
        self.norms = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(3)])

    def forward(
        self, x: Tensor, memory: Tensor, src_mask: Tensor | None, tgt_mask: Tensor | None
    ) -> Tensor:
        h = self.norms[0](x)
        x = x + self.self_attn(h, h, h, tgt_mask)
        x = x + self.src_attn(self.norms[1](x), memory, memory, src_mask)
        return x + self.ff(self.norms[2](x))


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, max_len: int = 64) -> None:
        super().__init__()
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[:, : x.size(1)]  # type: ignore[index]


class Translator(nn.Module):
    def __init__(
        self, vocab: int = 50, d_model: int = 32, h: int = 4, n: int = 2, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.src_embed, self.tgt_embed = nn.Embedding(vocab, d_model), nn.Embedding(vocab, d_model)
        self.position = PositionalEncoding(d_model)
        self.encoder = nn.ModuleList([EncoderBlock(d_model, h, dropout) for _ in range(n)])
        self.decoder = nn.ModuleList([DecoderBlock(d_model, h, dropout) for _ in range(n)])
        self.norm, self.final = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.generator = nn.Linear(d_model, vocab)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None) -> Tensor:
        T = tgt.size(1)
        tgt_mask = torch.ones(1, T, T, dtype=torch.bool, device=tgt.device).tril()
        memory = self.position(self.src_embed(src))
        for block in self.encoder:
            memory = block(memory, src_mask)
        memory = self.norm(memory)
        x = self.position(self.tgt_embed(tgt))
        for layer in self.decoder:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.generator(self.final(x))
