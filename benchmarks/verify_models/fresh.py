"""Models in other styles, each with one bug that can be switched off by editing its line.

Written after the checks were finished, to see how they do on code that they were not tried on.
`BUGS` holds (bug, class, wrong text, right text); the classes as written are correct.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, einsum, nn


class EinsumAttention(nn.Module):
    """Weights as plain parameters, heads in the einsum; causal by a comparison of positions."""

    def __init__(self, d_model: int = 24, n_heads: int = 3, d_head: int = 8) -> None:
        super().__init__()
        self.causal = True
        self.W_Q = nn.Parameter(torch.randn(n_heads, d_model, d_head) * 0.1)
        self.W_K = nn.Parameter(torch.randn(n_heads, d_model, d_head) * 0.1)
        self.W_V = nn.Parameter(torch.randn(n_heads, d_model, d_head) * 0.1)
        self.W_O = nn.Parameter(torch.randn(n_heads, d_head, d_model) * 0.1)

    def forward(self, resid: Tensor) -> Tensor:
        q = einsum("bpm,nmh->bpnh", resid, self.W_Q)
        k = einsum("bpm,nmh->bpnh", resid, self.W_K)
        v = einsum("bpm,nmh->bpnh", resid, self.W_V)
        scores = einsum("bqnh,bknh->bnqk", q, k) / math.sqrt(q.shape[-1])
        at = torch.arange(resid.shape[1])
        scores = scores.where(at[:, None] >= at[None, :], torch.tensor(-torch.inf))
        pattern = scores.softmax(-1)
        z = einsum("bnqk,bknh->bqnh", pattern, v)
        return einsum("bqnh,nhm->bqm", z, self.W_O)


class AlibiDecoder(nn.Module):
    """ALiBi biases, parallel attention and feed-forward, fused projections."""

    def __init__(self, ntoken: int = 40, dim: int = 24, nhead: int = 3, depth: int = 2) -> None:
        super().__init__()
        self.nhead = nhead
        self.causal = True
        self.emb = nn.Embedding(ntoken, dim)
        self.fused = nn.ModuleList([nn.Linear(dim, 7 * dim) for _ in range(depth)])
        self.outs = nn.ModuleList([nn.Linear(5 * dim, dim) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(depth)])
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, nhead + 1).float())
        self.to_logits = nn.Linear(dim, ntoken)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.emb(tokens)
        b, n, d = x.shape
        place = torch.arange(n)
        distance = (place[None] - place[:, None]).to(x.dtype)
        bias = distance * self.slopes[:, None, None]  # type: ignore[index]
        bias = bias.masked_fill(distance > 0, -torch.inf)
        for fused, out, norm in zip(self.fused, self.outs, self.norms, strict=True):
            q, k, v, ff = fused(norm(x)).split([d, d, d, 4 * d], dim=-1)
            q, k, v = (t.unflatten(-1, (self.nhead, -1)).transpose(1, 2) for t in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
            y = y.transpose(1, 2).flatten(2)
            x = x + out(torch.cat((y, F.gelu(ff)), dim=-1))
        return self.to_logits(x)


class PatchTransformer(nn.Module):
    """A classifier of vectors with a class token and attention pooling."""

    def __init__(
        self, patch_dim: int = 20, dim: int = 24, heads: int = 3, classes: int = 5
    ) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Linear(patch_dim, dim)
        self.cls = nn.Parameter(torch.randn(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, 64, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.classify = nn.Linear(dim, classes)

    def forward(self, patches: Tensor) -> Tensor:
        x = self.embed(patches)
        x = torch.cat((self.cls.expand(len(x), -1, -1), x), dim=1)
        x = x + self.pos[:, : x.shape[1]]
        b, n, d = x.shape
        h = self.norm1(x)
        qkv = self.to_qkv(h).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q @ k.mT * (d // self.heads) ** -0.5).softmax(dim=-1)
        x = x + self.to_out((attn @ v).transpose(1, 2).reshape(b, n, d))
        x = x + self.ff(self.norm2(x))
        return self.classify(x[:, 0])


class ReferenceLlama(nn.Module):
    """Module caches and a start position, as in the published inference code."""

    def __init__(self, vocab_size: int = 40, dim: int = 24, n_heads: int = 3) -> None:
        super().__init__()
        self.n_heads, self.hd = n_heads, dim // n_heads
        self.tok = nn.Embedding(vocab_size, dim)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.w1, self.w2 = nn.Linear(dim, 48, bias=False), nn.Linear(48, dim, bias=False)
        self.out = nn.Linear(dim, vocab_size, bias=False)
        self.cache_k = torch.zeros(4, 64, n_heads, self.hd)
        self.cache_v = torch.zeros(4, 64, n_heads, self.hd)

    def rope(self, x: Tensor, start: int) -> Tensor:
        half = 1.0 / 10000 ** (torch.arange(0, self.hd, 2)[: self.hd // 2].double() / self.hd)
        turn = torch.outer(torch.arange(start, start + x.shape[1]).double(), half)
        spin = torch.polar(torch.ones_like(turn), turn)[None, :, None]
        pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * spin).flatten(3).to(x.dtype)

    def forward(self, tokens: Tensor, start_pos: int = 0) -> Tensor:
        bsz, seqlen = tokens.shape
        h = self.tok(tokens)
        x = F.rms_norm(h, (h.shape[-1],))
        xq, xk, xv = (
            w(x).view(bsz, seqlen, self.n_heads, self.hd) for w in (self.wq, self.wk, self.wv)
        )
        xq, xk = self.rope(xq, start_pos), self.rope(xk, start_pos)
        self.cache_k, self.cache_v = self.cache_k.to(xq), self.cache_v.to(xq)
        self.cache_k[:bsz, start_pos : start_pos + seqlen] = xk.detach()
        self.cache_v[:bsz, start_pos : start_pos + seqlen] = xv.detach()
        keys = torch.cat((self.cache_k[:bsz, :start_pos], xk), dim=1).transpose(1, 2)
        values = torch.cat((self.cache_v[:bsz, :start_pos], xv), dim=1).transpose(1, 2)
        scores = torch.matmul(xq.transpose(1, 2), keys.transpose(2, 3)) / math.sqrt(self.hd)
        mask = torch.full((seqlen, start_pos + seqlen), float("-inf")).triu(start_pos + 1)
        scores = F.softmax(scores + mask.to(scores), dim=-1)
        y = torch.matmul(scores, values).transpose(1, 2).reshape(bsz, seqlen, -1)
        h = h + self.wo(y)
        h = h + self.w2(F.silu(self.w1(F.rms_norm(h, (h.shape[-1],)))))
        return self.out(h)


class TalkingClassifier(nn.Module):
    """Token ids and lengths padded with 0; the mask is made inside; mean of real tokens."""

    def __init__(self, n_words: int = 40, size: int = 24, n_head: int = 3, labels: int = 3) -> None:
        super().__init__()
        self.words = nn.Embedding(n_words, size, padding_idx=0)
        self.places = nn.Embedding(64, size)
        self.mha = nn.MultiheadAttention(size, n_head, dropout=0.1, batch_first=True)
        self.ln = nn.LayerNorm(size)
        self.out = nn.Linear(size, labels)

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is None:
            attention_mask = torch.ones_like(ids)
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        hide = attention_mask == 0
        y, _ = self.mha(x, x, x, key_padding_mask=hide, need_weights=False)
        x = self.ln(x + y)
        x = x.masked_fill(hide[..., None], 0.0)
        return self.out(x.sum(1) / (~hide).sum(1, keepdim=True))


class LocalLM(nn.Module):
    """One layer with a sliding window and a loss of its own."""

    def __init__(
        self, n_vocab: int = 40, n_state: int = 24, n_head: int = 3, window: int = 5
    ) -> None:
        super().__init__()
        self.window, self.n_head = window, n_head
        self.token_embedding = nn.Embedding(n_vocab, n_state)
        self.positional_embedding = nn.Parameter(torch.randn(64, n_state) * 0.1)
        self.ln = nn.LayerNorm(n_state)
        self.qkv, self.proj = nn.Linear(n_state, 3 * n_state), nn.Linear(n_state, n_state)
        self.dropout = nn.Dropout(0.2)
        self.fc, self.fc_out = nn.Linear(n_state, 48), nn.Linear(48, n_state)
        self.unembed = nn.Linear(n_state, n_vocab, bias=False)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        n = x.shape[1]
        h = self.token_embedding(x) + self.positional_embedding[:n]
        q, k, v = self.qkv(self.ln(h)).chunk(3, dim=-1)
        q, k, v = (t.view(*t.shape[:2], self.n_head, -1).permute(0, 2, 1, 3) for t in (q, k, v))
        i, j = torch.arange(n)[:, None], torch.arange(n)[None]
        allowed = (j <= i) & (i - j < self.window)
        w = (q @ k.transpose(2, 3)) * q.size(-1) ** -0.5
        w = w.masked_fill(~allowed, torch.finfo(w.dtype).min).softmax(-1)
        w = self.dropout(w)
        h = h + self.proj((w @ v).permute(0, 2, 1, 3).flatten(start_dim=2))
        h = h + self.fc_out(self.fc(h).relu())
        logits = self.unembed(h)
        found = {"logits": logits}
        if labels is not None:
            found["loss"] = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return found


BUGS = (
    ("scale-by-model-width", "EinsumAttention", "math.sqrt(q.shape[-1])", "math.sqrt(resid.shape[-1])"),
    ("softmax-axis", "EinsumAttention", "pattern = scores.softmax(-1)", "pattern = scores.softmax(-2)"),
    ("future-leak", "EinsumAttention", "at[:, None] >= at[None, :]", "at[:, None] >= at[None, :] - 1"),
    ("value-projection-shared", "EinsumAttention", "resid, self.W_V)", "resid, self.W_K)"),
    ("heads-mixed-by-view", "AlibiDecoder", "y = y.transpose(1, 2).flatten(2)", "y = y.reshape(b, n, d)"),
    ("residual-missing", "AlibiDecoder", "x = x + out(", "x = out("),
    ("future-leak", "AlibiDecoder", "bias = bias.masked_fill(distance > 0, -torch.inf)", "bias = bias.masked_fill(distance > 4, -torch.inf)"),
    ("heads-mixed-by-view", "PatchTransformer", "(attn @ v).transpose(1, 2).reshape", "(attn @ v).reshape"),
    ("scale-missing", "PatchTransformer", " * (d // self.heads) ** -0.5", ""),
    ("positions-not-offset-in-cache", "ReferenceLlama", "self.rope(xq, start_pos), self.rope(xk, start_pos)", "self.rope(xq, 0), self.rope(xk, 0)"),
    ("causal-aligned-top-left", "ReferenceLlama", "triu(start_pos + 1)", "triu(1)"),
    ("padding-leak-right", "TalkingClassifier", "(~hide).sum(1, keepdim=True)", "ids.shape[1]"),
    ("mask-inverted", "TalkingClassifier", "hide = attention_mask == 0", "hide = attention_mask != 0"),
    ("window-off-by-one", "LocalLM", "i - j < self.window", "i - j <= self.window"),
    ("loss-shifted-twice", "LocalLM", "logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()", "logits[:, :-2].flatten(0, 1), labels[:, 2:].flatten()"),
)  # fmt: skip
