"""A small model of the Llama kind: RMSNorm, rotary positions, grouped keys, a cache of tuples."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Past = list[tuple[Tensor, Tensor]]


def angles(width: int, theta: float = 10000.0) -> Tensor:
    return 1.0 / theta ** (torch.arange(0, width, 2).float() / width)


def rotate(x: Tensor, positions: Tensor, inv_freq: Tensor) -> Tensor:
    turn = positions[..., None].to(inv_freq.dtype) * inv_freq
    turn = torch.cat((turn, turn), dim=-1)[:, None]
    first, second = x.chunk(2, dim=-1)
    return x * turn.cos() + torch.cat((-second, first), dim=-1) * turn.sin()


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, width // heads
        self.dropout = dropout
        self.wq = nn.Linear(width, heads * self.head_dim, bias=False)
        self.wk = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(width, width, bias=False)
        self.register_buffer("inv_freq", angles(self.head_dim), persistent=False)

    def forward(
        self, x: Tensor, positions: Tensor, mask: Tensor, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        B, T, _ = x.shape
        q = self.wq(x).view(B, T, self.heads, self.head_dim).transpose(1, 2)
        k = self.wk(x).view(B, T, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.wv(x).view(B, T, self.kv_heads, self.head_dim).transpose(1, 2)
        q = rotate(q, positions, self.inv_freq)  # type: ignore[arg-type]
        k = rotate(k, positions, self.inv_freq)  # type: ignore[arg-type]
        if past is not None:
            k = torch.cat((past[0], k), dim=2)
            v = torch.cat((past[1], v), dim=2)
        present = (k, v)
        group = self.heads // self.kv_heads
        k = k.repeat_interleave(group, dim=1)
        v = v.repeat_interleave(group, dim=1)
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
        return self.wo(y.transpose(1, 2).reshape(B, T, -1)), present


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads)
        self.ffn_norm = RMSNorm(width)
        self.gate = nn.Linear(width, 3 * width, bias=False)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(
        self, x: Tensor, positions: Tensor, mask: Tensor, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, present = self.attention(self.attention_norm(x), positions, mask, past)
        x = x + y
        h = self.ffn_norm(x)
        x = x + self.down(F.silu(self.gate(h)) * self.up(h))
        return x, present


class RotaryLM(nn.Module):
    def __init__(
        self, vocab: int = 50, width: int = 32, heads: int = 4, kv_heads: int = 2, layers: int = 2
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList([Layer(width, heads, kv_heads) for _ in range(layers)])
        self.norm = RMSNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(
        self,
        tokens: Tensor,
        attention_mask: Tensor | None = None,
        past: Past | None = None,
        use_cache: bool = False,
    ) -> tuple[Tensor, Past | None]:
        B, T = tokens.shape
        start = past[0][0].shape[2] if past is not None else 0
        total = start + T
        if attention_mask is None:
            attention_mask = torch.ones(B, total, dtype=torch.bool, device=tokens.device)
        real = attention_mask.bool()
        positions = (real.long().cumsum(1) - 1).clamp(min=0)[:, -T:]
        causal = torch.ones(total, total, dtype=torch.bool, device=tokens.device).tril()[-T:]
        own = torch.eye(total, dtype=torch.bool, device=tokens.device)[-T:]
        mask = ((causal[None] & real[:, None]) | own)[:, None]
        x = self.embed(tokens)
        presents: Past = []
        for number, layer in enumerate(self.layers):
            x, present = layer(x, positions, mask, None if past is None else past[number])
            presents.append(present)
        logits = self.lm_head(self.norm(x))
        return logits, presents if use_cache else None
