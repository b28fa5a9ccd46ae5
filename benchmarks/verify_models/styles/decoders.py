# mypy: ignore-errors
"""Decoders in the styles of libraries and papers: grouped queries, windows, caches, experts."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


# --- grouped queries, complex rotation handed down, SDPA with enable_gqa --------------------------
def precompute_freqs(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: dim // 2].double() / dim))
    return torch.polar(torch.ones(end, dim // 2, dtype=torch.double), torch.outer(torch.arange(end).double(), freqs))


def apply_freqs(x, freqs):
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * freqs[None, :, None, :]).flatten(-2).to(x.dtype)


class GroupedLayer(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
        self.wkv = nn.Linear(dim, 2 * n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.w13, self.w2 = nn.Linear(dim, 2 * 32, bias=False), nn.Linear(32, dim, bias=False)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)

    def attention(self, x, freqs, cache):
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xk, xv = self.wkv(x).view(bsz, seqlen, 2, self.n_kv_heads, self.head_dim).unbind(2)
        xq, xk = apply_freqs(xq, freqs), apply_freqs(xk, freqs)
        if cache is not None:
            xk, xv = torch.cat([cache[0], xk], dim=1), torch.cat([cache[1], xv], dim=1)
        q, k, v = (t.transpose(1, 2) for t in (xq, xk, xv))
        keep = torch.ones(seqlen, k.shape[2], dtype=torch.bool).tril(k.shape[2] - seqlen)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep, enable_gqa=True)
        return self.wo(y.transpose(1, 2).reshape(bsz, seqlen, -1)), (xk, xv)

    def forward(self, x, freqs, cache=None):
        y, cache = self.attention(self.attention_norm(x), freqs, cache)
        h = x + y
        gate, up = self.w13(self.ffn_norm(h)).chunk(2, dim=-1)
        return h + self.w2(F.silu(gate) * up), cache


class GroupedQueryLM(nn.Module):
    def __init__(self, vocab=59, dim=32, n_layers=2, n_heads=4, n_kv_heads=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([GroupedLayer(dim, n_heads, n_kv_heads) for _ in range(n_layers)])
        self.norm, self.output = nn.RMSNorm(dim), nn.Linear(dim, vocab, bias=False)
        self.freqs_cis = precompute_freqs(dim // n_heads, 64)

    def forward(self, tokens, past_kv=None):
        start = 0 if past_kv is None else past_kv[0][0].shape[1]
        freqs = self.freqs_cis[start : start + tokens.shape[1]]
        h, new = self.tok_embeddings(tokens), []
        for i, layer in enumerate(self.layers):
            h, kv = layer(h, freqs, None if past_kv is None else past_kv[i])
            new.append(kv)
        return self.output(self.norm(h)), new


# --- a sliding window with global mask construction -----------------------------------------------
class SlidingWindowLM(nn.Module):
    def __init__(self, vocab_size=59, hidden=24, heads=3, sliding_window=4, layers=2):
        super().__init__()
        self.sliding_window, self.heads = sliding_window, heads
        self.embed_tokens, self.embed_positions = nn.Embedding(vocab_size, hidden), nn.Embedding(64, hidden)
        self.in_proj = nn.ModuleList([nn.Linear(hidden, 3 * hidden) for _ in range(layers)])
        self.o_proj = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(layers)])
        self.mlps = nn.ModuleList([nn.Sequential(nn.Linear(hidden, 40), nn.SiLU(), nn.Linear(40, hidden)) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(hidden) for _ in range(2 * layers)])
        self.head = nn.Linear(hidden, vocab_size)

    def band(self, n, like):
        row = torch.arange(n, device=like.device).unsqueeze(1)
        column = torch.arange(n, device=like.device).unsqueeze(0)
        visible = torch.logical_and(column <= row, column > row - self.sliding_window)
        return torch.zeros(n, n, dtype=like.dtype).masked_fill(visible.logical_not(), float("-inf"))

    def forward(self, input_ids):
        bsz, n = input_ids.size()
        x = self.embed_tokens(input_ids) + self.embed_positions.weight[:n]
        bias = self.band(n, x)
        for i in range(len(self.in_proj)):
            q, k, v = self.in_proj[i](self.norms[2 * i](x)).view(bsz, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            probs = torch.softmax(q.matmul(k.mT).mul(q.size(-1) ** -0.5).add(bias), dim=-1)
            x = x + self.o_proj[i](probs.matmul(v).permute(0, 2, 1, 3).flatten(2))
            x = x + self.mlps[i](self.norms[2 * i + 1](x))
        return self.head(x)


# --- a prefix that sees itself both ways --------------------------------------------------------------
class PrefixLanguageModel(nn.Module):
    def __init__(self, vocab=59, width=24, heads=4, prefix_length=3):
        super().__init__()
        self.prefix_length, self.heads = prefix_length, heads
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(64, width)
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, width))
        self.unembed = nn.Linear(width, vocab)

    def forward(self, ids):
        n = ids.shape[1]
        x = self.wte(ids) + self.wpe(torch.arange(n))
        i = torch.arange(n)
        may_see = (i[None, :] <= i[:, None]) | (i[None, :] < self.prefix_length)
        h = self.ln1(x)
        x = x + self.attn(h, h, h, attn_mask=~may_see, need_weights=False)[0]
        return self.unembed(x + self.mlp(self.ln2(x)))


# --- parallel residual, partial rotation, fused qkv interleaved by head ---------------------------------
class ParallelBlock(nn.Module):
    def __init__(self, hidden, heads, rotary_pct, dropout):
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        self.rotary_ndims = int(self.size * rotary_pct)
        inv = 10000 ** -(torch.arange(0, self.rotary_ndims, 2).float() / self.rotary_ndims)
        self.register_buffer("inv_freq", inv)
        self.query_key_value = nn.Linear(hidden, 3 * hidden)
        self.dense = nn.Linear(hidden, hidden)
        self.h_to_4h, self.four_h_to_h = nn.Linear(hidden, 64), nn.Linear(64, hidden)
        self.input_layernorm, self.post_layernorm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention_dropout, self.hidden_dropout = nn.Dropout(dropout), nn.Dropout(dropout)

    def rotate_half(self, x):
        first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
        return torch.cat((-second, first), dim=-1)

    def rotate(self, x, n):
        angle = torch.arange(n, device=x.device)[:, None] * self.inv_freq[None]
        angle = torch.cat((angle, angle), dim=-1).to(x.dtype)
        turned, rest = x[..., : self.rotary_ndims], x[..., self.rotary_ndims :]
        turned = turned * angle.cos() + self.rotate_half(turned) * angle.sin()
        return torch.cat((turned, rest), dim=-1)

    def forward(self, x):
        b, n, hidden = x.shape
        qkv = self.query_key_value(self.input_layernorm(x)).view(b, n, self.heads, 3 * self.size).transpose(1, 2)
        query, key, value = qkv.split(self.size, dim=-1)
        query, key = self.rotate(query, n), self.rotate(key, n)
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.size)
        causal = torch.tril(torch.ones(n, n, dtype=torch.bool, device=x.device))
        scores = torch.where(causal, scores, torch.finfo(scores.dtype).min)
        probs = self.attention_dropout(scores.softmax(dim=-1))
        context = torch.matmul(probs, value).transpose(1, 2).reshape(b, n, hidden)
        attn_output = self.hidden_dropout(self.dense(context))
        mlp_output = self.hidden_dropout(self.four_h_to_h(F.gelu(self.h_to_4h(self.post_layernorm(x)))))
        return x + attn_output + mlp_output


class ParallelResidualLM(nn.Module):
    def __init__(self, vocab=59, hidden=32, heads=4, rotary_pct=0.5, dropout=0.1):
        super().__init__()
        self.embed_in = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList([ParallelBlock(hidden, heads, rotary_pct, dropout) for _ in range(2)])
        self.final_layer_norm = nn.LayerNorm(hidden)
        self.embed_out = nn.Linear(hidden, vocab, bias=False)

    def forward(self, input_ids):
        h = self.embed_in(input_ids)
        for layer in self.layers:
            h = layer(h)
        return self.embed_out(self.final_layer_norm(h))


# --- linear biases of distance, heads folded into the batch, baddbmm ----------------------------------
class BiasedDistanceLM(nn.Module):
    def __init__(self, vocab=59, hidden=32, heads=4):
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(vocab, hidden)
        self.words_norm, self.norm_a, self.norm_b = (nn.LayerNorm(hidden) for _ in range(3))
        self.qkv, self.dense = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 64), nn.Linear(64, hidden)
        nn.init.normal_(self.words.weight, std=0.02)

    def slopes(self):
        return torch.tensor([2 ** (-8 * (i + 1) / self.heads) for i in range(self.heads)])

    def forward(self, input_ids):
        b, n = input_ids.shape
        x = self.words_norm(self.words(input_ids))
        alibi = self.slopes()[:, None, None] * torch.arange(n)[None, None, :]
        alibi = alibi.repeat(b, 1, 1).to(x.dtype)
        q, k, v = self.qkv(self.norm_a(x)).view(b, n, self.heads, 3, -1).unbind(3)
        q = q.transpose(1, 2).reshape(b * self.heads, n, -1)
        k = k.permute(0, 2, 3, 1).reshape(b * self.heads, -1, n)
        v = v.transpose(1, 2).reshape(b * self.heads, n, -1)
        scores = alibi.baddbmm(q, k, beta=1.0, alpha=1.0 / math.sqrt(q.size(-1)))
        scores = scores.view(b, self.heads, n, n)
        hide = torch.arange(n)[None, :] > torch.arange(n)[:, None]
        probs = F.softmax(scores.masked_fill(hide, torch.finfo(scores.dtype).min), dim=-1)
        context = torch.bmm(probs.view(b * self.heads, n, n), v)
        context = context.view(b, self.heads, n, -1).permute(0, 2, 1, 3).reshape(b, n, -1)
        x = x + self.dense(context)
        x = x + self.down(F.gelu(self.up(self.norm_b(x))))
        return F.linear(x, self.words.weight)


# --- normed queries, capped scores, sandwich norms, scaled embeddings --------------------------------
class CappedDecoderLM(nn.Module):
    def __init__(self, vocab=59, width=24, heads=3, cap=30.0):
        super().__init__()
        self.heads, self.cap, self.width = heads, cap, width
        self.embed = nn.Embedding(vocab, width)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.pos = nn.Embedding(64, width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.q_norm, self.k_norm = nn.RMSNorm(width // heads), nn.RMSNorm(width // heads)
        self.pre, self.post, self.pre_ff, self.post_ff, self.last = (nn.RMSNorm(width) for _ in range(5))
        self.gate, self.up, self.down = nn.Linear(width, 40), nn.Linear(width, 40), nn.Linear(40, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def forward(self, input_ids, labels=None):
        n = input_ids.size(1)
        x = self.embed(input_ids) * self.width**0.5 + self.pos(torch.arange(n, device=input_ids.device))
        h = self.pre(x)
        q, k, v = self.q_norm(self.split(self.q(h))), self.k_norm(self.split(self.k(h))), self.split(self.v(h))
        s = q @ k.mT / math.sqrt(q.shape[-1])
        s = self.cap * torch.tanh(s / self.cap)
        s = s + torch.full((n, n), -math.inf, dtype=s.dtype).triu_(1)
        y = self.o((s.softmax(-1) @ v).transpose(-3, -2).flatten(-2))
        x = x + self.post(y)
        h = self.pre_ff(x)
        x = x + self.post_ff(self.down(F.gelu(self.gate(h)) * self.up(h)))
        logits = self.last(x) @ self.embed.weight.T
        if labels is None:
            return {"logits": logits}
        shifted = F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:])
        return {"loss": shifted, "logits": logits}


# --- a memory of the segment before, relative positions ------------------------------------------------
class SegmentMemoryLM(nn.Module):
    def __init__(self, n_token=59, d_model=24, n_head=3, mem_len=6):
        super().__init__()
        self.n_head, self.mem_len, self.d_head = n_head, mem_len, d_model // n_head
        self.word_emb = nn.Embedding(n_token, d_model)
        self.q_net, self.kv_net = nn.Linear(d_model, d_model), nn.Linear(d_model, 2 * d_model)
        self.r_net, self.o_net = nn.Linear(d_model, d_model, bias=False), nn.Linear(d_model, d_model)
        self.r_w_bias = nn.Parameter(torch.randn(n_head, self.d_head) * 0.1)
        self.r_r_bias = nn.Parameter(torch.randn(n_head, self.d_head) * 0.1)
        self.ln = nn.LayerNorm(d_model)
        self.crit = nn.Linear(d_model, n_token)
        self.d_model = d_model

    def sinusoid(self, places):
        inv = 1 / (10000 ** (torch.arange(0.0, self.d_model, 2.0) / self.d_model))
        angle = torch.outer(places, inv)
        return torch.cat((angle.sin(), angle.cos()), dim=-1)

    def forward(self, data, mems=None):
        x = self.word_emb(data)
        b, q_len, _ = x.shape
        cat = x if mems is None else torch.cat((mems, x), dim=1)
        k_len = cat.shape[1]
        q = self.q_net(x).view(b, q_len, self.n_head, self.d_head)
        k, v = (t.view(b, k_len, self.n_head, self.d_head) for t in self.kv_net(cat).chunk(2, -1))
        i = torch.arange(k_len - q_len, k_len)[:, None]
        j = torch.arange(k_len)[None, :]
        r = self.r_net(self.sinusoid(torch.arange(k_len).to(x.dtype)).to(x.dtype)).view(k_len, self.n_head, self.d_head)
        content = torch.einsum("bind,bjnd->bnij", q + self.r_w_bias, k)
        distance = (i - j).clamp(min=0)
        place = torch.einsum("bind,rnd->bnir", q + self.r_r_bias, r)
        place = place.gather(3, distance.expand(b, self.n_head, q_len, k_len))
        score = (content + place) * (1 / self.d_head**0.5)
        score = score.masked_fill(j > i, -float("inf"))
        vec = torch.einsum("bnij,bjnd->bind", F.softmax(score, dim=3), v).flatten(2)
        x = self.ln(x + self.o_net(vec))
        return self.crit(x), cat[:, -self.mem_len :].detach()


# --- a mixture of experts: each token chooses its two ---------------------------------------------------
class ExpertsLM(nn.Module):
    def __init__(self, vocab=59, dim=24, heads=3, n_experts=4):
        super().__init__()
        self.heads = heads
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(64, dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.router = nn.Linear(dim, n_experts, bias=False)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, dim)) for _ in range(n_experts)])
        self.lm_head = nn.Linear(dim, vocab)

    def moe(self, h):
        flat = h.reshape(-1, h.shape[-1])
        gates = self.router(flat).softmax(-1)
        weight, chosen = gates.topk(2, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            rows, slot = (chosen == e).nonzero(as_tuple=True)
            if rows.numel():
                out = out.index_add(0, rows, expert(flat[rows]) * weight[rows, slot, None])
        return out.view_as(h)

    def forward(self, ids):
        b, t = ids.shape
        x = self.tok(ids) + self.pos(torch.arange(t))
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        return self.lm_head(x + self.moe(self.n2(x)))


# --- attention without a softmax: a running sum -----------------------------------------------------------
class RunningSumLM(nn.Module):
    def __init__(self, vocab=59, dim=24):
        super().__init__()
        self.causal = True
        self.e, self.p = nn.Embedding(vocab, dim), nn.Embedding(64, dim)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.e(tokens) + self.p(torch.arange(tokens.shape[1]))
        h = self.norm(x)
        q, k, v = F.elu(self.q(h)) + 1, F.elu(self.k(h)) + 1, self.v(h)
        state = torch.einsum("btd,bte->btde", k, v).cumsum(dim=1)
        total = k.cumsum(dim=1)
        y = torch.einsum("btd,btde->bte", q, state) / torch.einsum("btd,btd->bt", q, total)[..., None]
        return self.out(x + self.o(y))


# --- a short convolution before attention, shared layers ---------------------------------------------------
class ConvolutionLM(nn.Module):
    def __init__(self, vocab=59, dim=24, heads=3, kernel=3, depth=2):
        super().__init__()
        self.heads, self.depth, self.kernel = heads, depth, kernel
        self.embed, self.place = nn.Embedding(vocab, dim), nn.Embedding(64, dim)
        self.conv = nn.Conv1d(dim, dim, kernel, groups=dim)
        self.to_q, self.to_k, self.to_v, self.to_o = (nn.Linear(dim, dim) for _ in range(4))
        self.norm = nn.LayerNorm(dim)
        self.logits = nn.Linear(dim, vocab)

    def mix(self, x):
        return self.conv(F.pad(x.transpose(1, 2), (self.kernel - 1, 0))).transpose(1, 2)

    def forward(self, tokens):
        n = tokens.shape[1]
        x = self.embed(tokens) + self.place(torch.arange(n))
        for _ in range(self.depth):  # one layer, used twice
            h = self.mix(self.norm(x))
            q, k, v = (f(h).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.to_q, self.to_k, self.to_v))
            x = x + self.to_o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return self.logits(x)


# --- the difference of two softmaxes; a sink that takes weight -----------------------------------------------
class DifferenceAttention(nn.Module):
    def __init__(self, dim=24, heads=3):
        super().__init__()
        self.causal = True
        self.heads, self.d = heads, dim // heads // 2
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.lam = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        b, n, _ = x.shape
        q, k = (f(x).view(b, n, 2 * self.heads, self.d).transpose(1, 2) for f in (self.q, self.k))
        v = self.v(x).view(b, n, self.heads, 2 * self.d).transpose(1, 2)
        s = (q * self.d**-0.5) @ k.transpose(-1, -2)
        s = s + torch.triu(torch.full((n, n), float("-inf"), dtype=x.dtype), 1)
        a = s.softmax(-1).view(b, self.heads, 2, n, n)
        a = a[:, :, 0] - self.lam * a[:, :, 1]
        return self.o((a @ v).transpose(1, 2).reshape(b, n, -1))


class SinkAttention(nn.Module):
    def __init__(self, dim=24, heads=3):
        super().__init__()
        self.is_causal = True
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.sinks = nn.Parameter(torch.zeros(heads))

    def forward(self, hidden_states):
        b, n, d = hidden_states.shape
        q, k, v = self.qkv(hidden_states).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        logits = torch.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
        logits = logits.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
        sink = self.sinks.view(1, -1, 1, 1).expand(b, -1, n, 1)
        weights = torch.cat((logits, sink), dim=-1).softmax(dim=-1)[..., :-1]
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, d))


# --- only a loss comes back, and targets are made inside ---------------------------------------------------
class LossOnlyGPT(nn.Module):
    def __init__(self, vocab=59, dim=24, heads=3, layers=2, pad=0):
        super().__init__()
        self.pad = pad
        self.tok, self.pos = nn.Embedding(vocab, dim, padding_idx=pad), nn.Embedding(64, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 48, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids, return_loss=False):
        n = ids.shape[1]
        x = self.tok(ids) + self.pos(torch.arange(n))
        mask = nn.Transformer.generate_square_subsequent_mask(n, dtype=x.dtype)
        logits = self.head(self.body(x, mask=mask, is_causal=True))
        if not return_loss:
            return logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=self.pad)


# --- a width-independent scale, on purpose ------------------------------------------------------------------
class WidthTransferLM(nn.Module):
    """Scores are divided by d, not by sqrt(d), as mu-parametrization (muP) asks."""

    def __init__(self, vocab=59, dim=32, heads=4, mup=True):
        super().__init__()
        self.heads, self.mup = heads, mup
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(64, dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab)

    def forward(self, ids):
        b, n = ids.shape
        x = self.tok(ids) + self.pos(torch.arange(n))
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        scale = 1 / q.size(-1) if self.mup else q.size(-1) ** -0.5  # muP: 1/d
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        return self.head(x + self.out(y.transpose(1, 2).flatten(2)))
