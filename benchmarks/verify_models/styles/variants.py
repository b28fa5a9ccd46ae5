# mypy: ignore-errors
"""Variants that papers and practitioners use: other scalings, norms, caches, poolings, wrappers."""

import math
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F


# --- a learner types the blog's class: one matrix for all heads, the mask by a helper ------------------
def mask_(matrices, maskval=0.0, mask_diagonal=True):
    h, w = matrices.size(-2), matrices.size(-1)
    indices = torch.triu_indices(h, w, offset=0 if mask_diagonal else 1)
    matrices[..., indices[0], indices[1]] = maskval


class LearnersSelfAttention(nn.Module):
    def __init__(self, emb=24, heads=4, mask=True):
        super().__init__()
        self.emb, self.heads, self.mask = emb, heads, mask
        self.tokeys = nn.Linear(emb, emb, bias=False)
        self.toqueries = nn.Linear(emb, emb, bias=False)
        self.tovalues = nn.Linear(emb, emb, bias=False)
        self.unifyheads = nn.Linear(emb, emb)

    def forward(self, x):
        b, t, e = x.size()
        h = self.heads
        s = e // h
        keys, queries, values = self.tokeys(x), self.toqueries(x), self.tovalues(x)
        keys = keys.view(b, t, h, s).transpose(1, 2).contiguous().view(b * h, t, s)
        queries = queries.view(b, t, h, s).transpose(1, 2).contiguous().view(b * h, t, s)
        values = values.view(b, t, h, s).transpose(1, 2).contiguous().view(b * h, t, s)
        queries = queries / (e ** (1 / 4)) * h ** (1 / 4)
        keys = keys / (s ** (1 / 4))
        dot = torch.bmm(queries, keys.transpose(1, 2))
        if self.mask:
            mask_(dot, maskval=float("-inf"), mask_diagonal=False)
        dot = F.softmax(dot, dim=2)
        out = torch.bmm(dot, values).view(b, h, t, s)
        out = out.transpose(1, 2).contiguous().view(b, t, s * h)
        return self.unifyheads(out)


# --- flags for flash attention, a config of namespaces, scaled initialisation ----------------------------
def small_config(**more):
    return SimpleNamespace(**{"vocab_size": 52, "block_size": 20, "n_embd": 24, "n_head": 3, "n_layer": 2, "dropout": 0.1, **more})


class FlashOrNot(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(c.n_embd, 3 * c.n_embd), nn.Linear(c.n_embd, c.n_embd)
        self.n_head, self.n_embd, self.p = c.n_head, c.n_embd, c.dropout
        self.resid_dropout = nn.Dropout(c.dropout)
        self.flash = c.flash

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in (q, k, v))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(~torch.ones(T, T, dtype=torch.bool).tril(), float("-inf"))
            y = F.dropout(F.softmax(att, dim=-1), self.p, self.training) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))


class NanoStyle(nn.Module):
    def __init__(self, flash=True):
        super().__init__()
        c = self.config = small_config(flash=flash)
        block = lambda: nn.ModuleDict(dict(ln1=nn.LayerNorm(c.n_embd), attn=FlashOrNot(c), ln2=nn.LayerNorm(c.n_embd), fc=nn.Linear(c.n_embd, 48), proj=nn.Linear(48, c.n_embd)))
        self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(c.vocab_size, c.n_embd), wpe=nn.Embedding(c.block_size, c.n_embd), drop=nn.Dropout(c.dropout), h=nn.ModuleList([block() for _ in range(c.n_layer)]), ln_f=nn.LayerNorm(c.n_embd)))
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, idx, targets=None):
        b, t = idx.size()
        assert t <= self.config.block_size, f"sequence of {t}, block size is {self.config.block_size}"
        m = self.transformer
        x = m.drop(m.wte(idx) + m.wpe(torch.arange(t, device=idx.device)))
        for h in m.h:
            x = x + h["attn"](h["ln1"](x))
            x = x + h["proj"](F.gelu(h["fc"](h["ln2"](x))))
        x = m.ln_f(x)
        if targets is not None:
            logits = self.lm_head(x)
            return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return self.lm_head(x[:, [-1], :]), None

    @torch.no_grad()
    def generate(self, idx, n):
        for _ in range(n):
            logits, _ = self(idx[:, -self.config.block_size :])
            idx = torch.cat((idx, logits[:, -1].argmax(-1, keepdim=True)), dim=1)
        return idx


# --- cosine attention with a learned temperature ----------------------------------------------------------
class CosineAttention(nn.Module):
    def __init__(self, dim=24, heads=3):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)
        self.temperature = nn.Parameter(torch.full((heads, 1, 1), math.log(10.0)))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attn = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        attn = attn * self.temperature.exp()
        return self.proj((attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, n, d))


# --- residuals that begin at zero; residuals that are scaled up ------------------------------------------------
class ZeroStartEncoder(nn.Module):
    def __init__(self, vocab=52, dim=24, heads=3, depth=3):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, dim), nn.Parameter(torch.randn(40, dim) * 0.02)
        self.att = nn.ModuleList([nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(depth)])
        self.ff = nn.ModuleList([nn.Sequential(nn.Linear(dim, 40), nn.ReLU(), nn.Linear(40, dim)) for _ in range(depth)])
        self.alpha = nn.Parameter(torch.zeros(depth, 2))

    def forward(self, tokens, key_padding_mask=None):
        x = self.emb(tokens) + self.pos[: tokens.shape[1]]
        for i, (att, ff) in enumerate(zip(self.att, self.ff)):
            x = x + self.alpha[i, 0] * att(x, x, x, key_padding_mask=key_padding_mask, need_weights=False)[0]
            x = x + self.alpha[i, 1] * ff(x)
        return x


class ScaledPostNormLM(nn.Module):
    def __init__(self, vocab=52, dim=24, heads=3, depth=2):
        super().__init__()
        self.alpha = (2 * depth) ** 0.25
        self.emb, self.pos = nn.Embedding(vocab, dim), nn.Embedding(40, dim)
        self.q, self.kv, self.o = (nn.ModuleList([nn.Linear(dim, n * dim) for _ in range(depth)]) for n in (1, 2, 1))
        self.up, self.down = (nn.ModuleList([nn.Linear(*size) for _ in range(depth)]) for size in ((dim, 48), (48, dim)))
        self.ln1, self.ln2 = (nn.ModuleList([nn.LayerNorm(dim) for _ in range(depth)]) for _ in range(2))
        self.out, self.heads = nn.Linear(dim, vocab), heads

    def forward(self, ids):
        b, n = ids.shape
        x = self.emb(ids) + self.pos(torch.arange(n))
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        for i in range(len(self.q)):
            q = self.q[i](x).view(b, n, self.heads, -1).transpose(1, 2)
            k, v = self.kv[i](x).view(b, n, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
            w = torch.einsum("bhid,bhjd->bhij", q, k).div(math.sqrt(q.size(-1))).masked_fill(future, float("-inf")).softmax(-1)
            y = torch.einsum("bhij,bhjd->bihd", w, v).reshape(b, n, -1)
            x = self.ln1[i](self.alpha * x + self.o[i](y))
            x = self.ln2[i](self.alpha * x + self.down[i](F.gelu(self.up[i](x))))
        return self.out(x)


# --- one key head for all queries; a recurrent layer before attention ----------------------------------------
class OneKeyHeadLM(nn.Module):
    def __init__(self, vocab=52, dim=32, heads=4):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.emb, self.norm = nn.Embedding(vocab, dim), nn.RMSNorm(dim)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.to_q, self.to_kv, self.to_out = nn.Linear(dim, dim), nn.Linear(dim, 2 * self.d), nn.Linear(dim, dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, seq):
        x, _ = self.lstm(self.emb(seq))
        b, n, _ = x.shape
        h = self.norm(x)
        q = self.to_q(h).view(b, n, self.heads, self.d).transpose(1, 2)
        k, v = self.to_kv(h)[:, None].chunk(2, dim=-1)
        sim = torch.einsum("b h i d, b o j d -> b h i j", q * self.d**-0.5, k)
        sim = sim.masked_fill(torch.triu(torch.ones(n, n, dtype=torch.bool), 1), -torch.finfo(sim.dtype).max)
        out = torch.matmul(sim.softmax(dim=-1), v)
        return self.head(x + self.to_out(out.transpose(1, 2).reshape(b, n, -1)))


# --- no positions on purpose; a window both ways; every third token -------------------------------------------
class WithoutPositionsLM(nn.Module):
    def __init__(self, vocab=52, dim=24, heads=3):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 48, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        n = ids.shape[1]
        return self.head(self.layers(self.emb(ids), mask=torch.ones(n, n, dtype=torch.bool).triu(1)))


class LocalEncoder(nn.Module):
    def __init__(self, vocab=52, dim=24, heads=3, window=2):
        super().__init__()
        self.heads, self.window = heads, window
        self.emb, self.pos = nn.Embedding(vocab, dim), nn.Embedding(40, dim)
        self.qkv, self.o, self.ln = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.LayerNorm(dim)

    def forward(self, ids, attention_mask=None):
        b, n = ids.shape
        x = self.emb(ids) + self.pos(torch.arange(n))
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        i = torch.arange(n)
        near = ((i[:, None] - i).abs() <= self.window)[None, None]
        if attention_mask is not None:
            near = near & attention_mask.bool()[:, None, None]
        s = (q @ k.mT / q.size(-1) ** 0.5).masked_fill(~near, torch.finfo(x.dtype).min)
        return self.ln(x + self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1)))


class StridedLM(nn.Module):
    def __init__(self, vocab=52, dim=24, heads=3, stride=3):
        super().__init__()
        self.heads, self.stride = heads, stride
        self.emb, self.pos = nn.Embedding(vocab, dim), nn.Embedding(40, dim)
        self.qkv, self.o, self.ln = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.LayerNorm(dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        b, n = x.shape
        x = self.emb(x) + self.pos(torch.arange(n))
        q, k, v = self.qkv(self.ln(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        i, j = torch.arange(n)[:, None], torch.arange(n)[None]
        keep = (j <= i) & (((i - j) % self.stride == 0) | (i - j < self.stride))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.out(x + self.o(y.transpose(1, 2).reshape(b, n, -1)))


# --- questions that read a memory: objects, pooled attention, pairs of outputs ---------------------------------
class ObjectQueries(nn.Module):
    def __init__(self, dim=24, heads=3, objects=5, classes=4):
        super().__init__()
        self.query_embed = nn.Embedding(objects, dim)
        self.encoder = nn.TransformerEncoderLayer(dim, heads, 40, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(dim, heads, 40, batch_first=True)
        self.class_embed, self.box_embed = nn.Linear(dim, classes), nn.Linear(dim, 4)

    def forward(self, features):
        memory = self.encoder(features)
        queries = self.query_embed.weight.expand(len(features), -1, -1)
        hidden = self.decoder(queries, memory)
        return {"logits": self.class_embed(hidden), "boxes": self.box_embed(hidden).sigmoid()}


class AttentionPooler(nn.Module):
    def __init__(self, vocab=52, dim=24, heads=3, labels=4, padding_idx=0):
        super().__init__()
        self.padding_idx = padding_idx
        self.emb, self.pos = nn.Embedding(vocab, dim, padding_idx=padding_idx), nn.Embedding(40, dim)
        self.enc = nn.TransformerEncoderLayer(dim, heads, 40, batch_first=True)
        self.ask, self.fc = nn.Linear(dim, 1), nn.Linear(dim, labels)

    def forward(self, tokens):
        pad = tokens.eq(self.padding_idx)
        x = self.emb(tokens) + self.pos(torch.arange(tokens.size(1)))
        x = self.enc(x, src_key_padding_mask=pad)
        weight = self.ask(x).squeeze(-1).masked_fill(pad, float("-inf")).softmax(-1)
        pooled = torch.einsum("bt,btd->bd", weight, x)
        return self.fc(pooled), weight


class TwoTowers(nn.Module):
    def __init__(self, vocab=52, dim=24, heads=3):
        super().__init__()
        self.left, self.right = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(40, dim)
        self.tower = nn.TransformerEncoderLayer(dim, heads, 40, batch_first=True)

    def side(self, table, ids):
        return self.tower(table(ids) + self.pos(torch.arange(ids.shape[1]))).mean(1)

    def forward(self, query_ids, document_ids):
        a, b = self.side(self.left, query_ids), self.side(self.right, document_ids)
        return F.cosine_similarity(a, b, dim=-1).unsqueeze(-1)


# --- a gate instead of a softmax; squared relu --------------------------------------------------------------
class GatedUnitLM(nn.Module):
    def __init__(self, vocab=52, dim=24, expand=48, size=16):
        super().__init__()
        self.autoregressive = True
        self.emb, self.pos, self.norm = nn.Embedding(vocab, dim), nn.Embedding(40, dim), nn.LayerNorm(dim)
        self.uv, self.z, self.o = nn.Linear(dim, 2 * expand), nn.Linear(dim, size), nn.Linear(expand, dim)
        self.gamma, self.beta = nn.Parameter(torch.randn(2, size)), nn.Parameter(torch.zeros(2, size))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        n = ids.shape[1]
        x = self.emb(ids) + self.pos(torch.arange(n))
        h = self.norm(x)
        u, v = F.silu(self.uv(h)).chunk(2, -1)
        q, k = (F.silu(self.z(h)).unsqueeze(2) * self.gamma + self.beta).unbind(2)
        a = F.relu(q @ k.transpose(1, 2) / n).square().tril()
        return self.head(x + self.o(u * (a @ v)))


# --- Hugging Face's way: a config, keyword outputs, a tuple of caches ------------------------------------------
class HubStyleForCausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(vocab_size=52, hidden_size=24, num_attention_heads=3, num_hidden_layers=2, pad_token_id=0, is_decoder=True)
        c = self.config
        self.embed_tokens, self.embed_positions = nn.Embedding(c.vocab_size, c.hidden_size), nn.Embedding(40, c.hidden_size)
        self.qkv = nn.ModuleList([nn.Linear(c.hidden_size, 3 * c.hidden_size) for _ in range(2)])
        self.out = nn.ModuleList([nn.Linear(c.hidden_size, c.hidden_size) for _ in range(2)])
        self.norm = nn.ModuleList([nn.LayerNorm(c.hidden_size) for _ in range(3)])
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)

    def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None, labels=None, use_cache=False):
        b, n = input_ids.shape
        past = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        if attention_mask is None:
            attention_mask = torch.ones(b, past + n, dtype=torch.long)
        if position_ids is None:
            position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -n:]
        x = self.embed_tokens(input_ids) + self.embed_positions(position_ids)
        see = torch.ones(past + n, past + n, dtype=torch.bool).tril()[past:]
        see = see[None, None] & attention_mask.bool()[:, None, None]
        bias = torch.zeros(see.shape, dtype=x.dtype).masked_fill(~see, torch.finfo(x.dtype).min)
        present = []
        for i in range(2):
            q, k, v = self.qkv[i](self.norm[i](x)).view(b, n, 3, 3, -1).permute(2, 0, 3, 1, 4)
            if past_key_values is not None:
                k, v = torch.cat((past_key_values[i][0], k), dim=2), torch.cat((past_key_values[i][1], v), dim=2)
            present.append((k, v))
            w = (q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)) + bias).softmax(-1)
            x = x + self.out[i]((w @ v).transpose(1, 2).reshape(b, n, -1))
        logits = self.lm_head(self.norm[-1](x))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1), ignore_index=-100)
        return {"loss": loss, "logits": logits, "past_key_values": tuple(present) if use_cache else None}


# --- a decoder layer of torch, fed with its own embeddings only ----------------------------------------------
class DecoderLayersLM(nn.Module):
    def __init__(self, vocab=52, dim=24, heads=3):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, dim), nn.Embedding(40, dim)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(dim, heads, 40, batch_first=True), 2)
        self.fc = nn.Linear(dim, vocab)

    def forward(self, tgt, memory):
        n = tgt.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(n).to(memory.dtype)
        return self.fc(self.decoder(self.emb(tgt) + self.pos(torch.arange(n)), memory, tgt_mask=mask, tgt_is_causal=True))


# --- a layer that drops whole sublayers in training; attention with extra global tokens -----------------------
class StochasticDepthEncoder(nn.Module):
    def __init__(self, dim=24, heads=3, drop_path=0.2, registers=2):
        super().__init__()
        self.drop_path = drop_path
        self.registers = nn.Parameter(torch.randn(registers, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 40), nn.GELU(), nn.Linear(40, dim))

    def drop(self, y):
        if not self.training:
            return y
        keep = torch.rand(len(y), 1, 1) > self.drop_path
        return y * keep / (1 - self.drop_path)

    def forward(self, x):
        extra = self.registers.expand(len(x), -1, -1)
        x = torch.cat((extra, x), dim=1)
        h = self.norm1(x)
        x = x + self.drop(self.attn(h, h, h, need_weights=False)[0])
        x = x + self.drop(self.mlp(self.norm2(x)))
        return x[:, len(self.registers) :]


# --- the token before, mixed in; exponential decay -----------------------------------------------------------
class ShiftAndDecayLM(nn.Module):
    def __init__(self, vocab=52, dim=24, heads=3):
        super().__init__()
        self.causal, self.heads = True, heads
        self.emb, self.norm = nn.Embedding(vocab, dim), nn.LayerNorm(dim)
        self.mix = nn.Parameter(torch.rand(dim))
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.decay = nn.Parameter(torch.linspace(1, 4, heads))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.emb(ids)
        h = self.norm(x)
        before = F.pad(h, (0, 0, 1, -1))
        h = self.mix * h + (1 - self.mix) * before
        b, n, _ = h.shape
        q, k, v = (f(h).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        i = torch.arange(n)
        far = (i[:, None] - i).to(h.dtype)
        decay = torch.exp(-far * torch.sigmoid(self.decay)[:, None, None]).masked_fill(far < 0, 0.0)
        y = (q @ k.transpose(-1, -2)) * q.size(-1) ** -0.5 * decay
        return self.head(x + self.o((y @ v).transpose(1, 2).reshape(b, n, -1)))
