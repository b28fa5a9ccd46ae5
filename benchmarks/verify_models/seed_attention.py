"""Self-attention and the classifier as the first seed prints them, and the second one's form."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SelfAttention(nn.Module):
    def __init__(self, k: int = 32, heads: int = 4, mask: bool = False) -> None:
        super().__init__()
        assert k % heads == 0
        self.k, self.heads, self.mask = k, heads, mask
        self.tokeys = nn.Linear(k, k, bias=False)
        self.toqueries = nn.Linear(k, k, bias=False)
        self.tovalues = nn.Linear(k, k, bias=False)
        self.unifyheads = nn.Linear(k, k)

    def forward(self, x: Tensor) -> Tensor:
        b, t, k = x.size()
        h = self.heads
        queries = self.toqueries(x)
        keys = self.tokeys(x)
        values = self.tovalues(x)
        s = k // h
        keys = keys.view(b, t, h, s)
        queries = queries.view(b, t, h, s)
        values = values.view(b, t, h, s)
        keys = keys.transpose(1, 2).contiguous().view(b * h, t, s)
        queries = queries.transpose(1, 2).contiguous().view(b * h, t, s)
        values = values.transpose(1, 2).contiguous().view(b * h, t, s)
        dot = torch.bmm(queries, keys.transpose(1, 2))
        dot = dot / (s ** (1 / 2))
        if self.mask:
            indices = torch.triu_indices(t, t, offset=1)
            dot[:, indices[0], indices[1]] = float("-inf")
        dot = F.softmax(dot, dim=2)
        out = torch.bmm(dot, values).view(b, h, t, s)
        out = out.transpose(1, 2).contiguous().view(b, t, s * h)
        return self.unifyheads(out)


class SecondSelfAttention(nn.Module):
    def __init__(self, l: int = 32, h: int = 4) -> None:  # noqa: E741
        super().__init__()
        self.l, self.h, self.chunk_dim = l, h, l // h
        self.q_mat = nn.Linear(l, l, bias=False)
        self.k_mat = nn.Linear(l, l, bias=False)
        self.v_mat = nn.Linear(l, l, bias=False)
        self.unifyheads = nn.Linear(l, l)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q_mat(x)
        k = self.k_mat(x)
        v = self.v_mat(x)
        norm_dot = torch.sqrt(torch.tensor(self.chunk_dim))
        t = 0
        y = []
        for _ in range(self.h):
            part = slice(t, t + self.chunk_dim)
            w_prime = q[:, :, part] @ k[:, :, part].transpose(-2, -1) / norm_dot
            w = torch.softmax(w_prime, dim=-1)
            y.append(w @ v[:, :, part])
            t += self.chunk_dim
        return self.unifyheads(torch.cat(y, dim=-1))


class TransformerBlock(nn.Module):
    def __init__(self, k: int, heads: int, mask: bool = False) -> None:
        super().__init__()
        self.attention = SelfAttention(k, heads=heads, mask=mask)
        self.norm1 = nn.LayerNorm(k)
        self.norm2 = nn.LayerNorm(k)
        self.ff = nn.Sequential(nn.Linear(k, 4 * k), nn.ReLU(), nn.Linear(4 * k, k))

    def forward(self, x: Tensor) -> Tensor:
        attended = self.attention(x)
        x = self.norm1(attended + x)
        fedforward = self.ff(x)
        return self.norm2(fedforward + x)


class GeneratorTransformer(nn.Module):
    """The first seed's generator: a masked stack with position embeddings."""

    def __init__(
        self,
        k: int = 32,
        heads: int = 4,
        depth: int = 2,
        seq_length: int = 24,
        num_tokens: int = 50,
    ) -> None:
        super().__init__()
        self.token_emb = nn.Embedding(num_tokens, k)
        self.pos_emb = nn.Embedding(seq_length, k)
        self.tblocks = nn.Sequential(*[TransformerBlock(k, heads, mask=True) for _ in range(depth)])
        self.toprobs = nn.Linear(k, num_tokens)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.token_emb(x)
        b, t, k = tokens.size()
        positions = self.pos_emb(torch.arange(t))[None, :, :].expand(b, t, k)
        x = tokens + positions
        x = self.tblocks(x)
        return self.toprobs(x)


class ClassifierTransformer(nn.Module):
    """The first seed's classifier: mean over time, then a linear map."""

    def __init__(
        self,
        k: int = 32,
        heads: int = 4,
        depth: int = 2,
        seq_length: int = 24,
        num_tokens: int = 50,
    ) -> None:
        super().__init__()
        self.token_emb = nn.Embedding(num_tokens, k)
        self.pos_emb = nn.Embedding(seq_length, k)
        self.tblocks = nn.Sequential(*[TransformerBlock(k, heads) for _ in range(depth)])
        self.toprobs = nn.Linear(k, 2)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.token_emb(x)
        b, t, k = tokens.size()
        positions = self.pos_emb(torch.arange(t))[None, :, :].expand(b, t, k)
        x = tokens + positions
        x = self.tblocks(x)
        x = self.toprobs(x.mean(dim=1))
        return F.log_softmax(x, dim=1)
