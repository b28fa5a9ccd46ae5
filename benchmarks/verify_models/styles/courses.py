# mypy: ignore-errors
"""Models in the styles of courses and books: untyped, as learners write them."""

import copy
import math
from dataclasses import dataclass

import einops
import torch
import torch.nn as nn
import torch.nn.functional as F


# --- an interpretability course: weights per head, einops everywhere --------------------------
@dataclass
class Cfg:
    d_model: int = 24
    d_vocab: int = 61
    n_ctx: int = 32
    d_head: int = 6
    d_mlp: int = 40
    n_heads: int = 4
    n_layers: int = 2
    init_range: float = 0.02
    layer_norm_eps: float = 1e-5


class LayerNormW(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.w = nn.Parameter(torch.ones(cfg.d_model))
        self.b = nn.Parameter(torch.zeros(cfg.d_model))

    def forward(self, residual):
        mean = residual.mean(dim=-1, keepdim=True)
        std = (residual.var(dim=-1, keepdim=True, unbiased=False) + self.cfg.layer_norm_eps).sqrt()
        return (residual - mean) / std * self.w + self.b


class EinopsAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        shape = (cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_Q = nn.Parameter(torch.empty(shape).normal_(std=cfg.init_range))
        self.W_K = nn.Parameter(torch.empty(shape).normal_(std=cfg.init_range))
        self.W_V = nn.Parameter(torch.empty(shape).normal_(std=cfg.init_range))
        self.W_O = nn.Parameter(torch.empty(cfg.n_heads, cfg.d_head, cfg.d_model).normal_(std=0.02))
        self.b_Q = nn.Parameter(torch.zeros(cfg.n_heads, cfg.d_head))
        self.b_K = nn.Parameter(torch.zeros(cfg.n_heads, cfg.d_head))
        self.b_V = nn.Parameter(torch.zeros(cfg.n_heads, cfg.d_head))
        self.b_O = nn.Parameter(torch.zeros(cfg.d_model))
        self.register_buffer("IGNORE", torch.tensor(float("-inf")))

    def forward(self, normed):
        q = einops.einsum(normed, self.W_Q, "b s e, n e h -> b s n h") + self.b_Q
        k = einops.einsum(normed, self.W_K, "b s e, n e h -> b s n h") + self.b_K
        v = einops.einsum(normed, self.W_V, "b s e, n e h -> b s n h") + self.b_V
        scores = einops.einsum(q, k, "b sq n h, b sk n h -> b n sq sk")
        scores = self.apply_causal_mask(scores / self.cfg.d_head**0.5)
        pattern = scores.softmax(-1)
        z = einops.einsum(v, pattern, "b sk n h, b n sq sk -> b sq n h")
        return einops.einsum(z, self.W_O, "b sq n h, n h e -> b sq e") + self.b_O

    def apply_causal_mask(self, scores):
        everything = torch.ones(scores.size(-2), scores.size(-1), device=scores.device)
        above = torch.triu(everything, diagonal=1).bool()
        scores.masked_fill_(above, self.IGNORE)
        return scores


class EinopsBlock(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln1, self.ln2 = LayerNormW(cfg), LayerNormW(cfg)
        self.attn = EinopsAttention(cfg)
        self.W_in = nn.Parameter(torch.randn(cfg.d_model, cfg.d_mlp) * cfg.init_range)
        self.W_out = nn.Parameter(torch.randn(cfg.d_mlp, cfg.d_model) * cfg.init_range)

    def forward(self, resid_pre):
        resid_mid = self.attn(self.ln1(resid_pre)) + resid_pre
        post = F.gelu(einops.einsum(self.ln2(resid_mid), self.W_in, "b s e, e m -> b s m"))
        return einops.einsum(post, self.W_out, "b s m, m e -> b s e") + resid_mid


class DemoTransformer(nn.Module):
    def __init__(self, cfg=Cfg()):
        super().__init__()
        self.cfg = cfg
        self.W_E = nn.Parameter(torch.randn(cfg.d_vocab, cfg.d_model) * cfg.init_range)
        self.W_pos = nn.Parameter(torch.randn(cfg.n_ctx, cfg.d_model) * cfg.init_range)
        self.blocks = nn.ModuleList([EinopsBlock(cfg) for _ in range(cfg.n_layers)])
        self.ln_final = LayerNormW(cfg)
        self.W_U = nn.Parameter(torch.randn(cfg.d_model, cfg.d_vocab) * cfg.init_range)

    def forward(self, tokens):
        pos = einops.repeat(self.W_pos[: tokens.shape[1]], "s e -> b s e", b=tokens.shape[0])
        residual = self.W_E[tokens] + pos
        for block in self.blocks:
            residual = block(residual)
        return self.ln_final(residual) @ self.W_U


# --- a lecture on video: one head at a time, globals for the sizes -----------------------------
n_embd, n_head, block_size, vocab_size, dropout = 24, 4, 16, 65, 0.2


class Head(nn.Module):
    def __init__(self, head_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        B, T, C = x.shape
        k = self.key(x)
        q = self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        wei = F.softmax(wei, dim=-1)
        wei = self.dropout(wei)
        v = self.value(x)
        return wei @ v


class HeadList(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([Head(n_embd // n_head) for _ in range(n_head)])
        self.proj = nn.Linear(n_embd, n_embd)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        out = torch.cat([h(x) for h in self.heads], dim=-1)
        return self.dropout(self.proj(out))


class LectureBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.sa = HeadList()
        self.ffwd = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(dropout)
        )
        self.ln1 = nn.LayerNorm(n_embd)
        self.ln2 = nn.LayerNorm(n_embd)

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        x = x + self.ffwd(self.ln2(x))
        return x


class LectureLanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding_table = nn.Embedding(vocab_size, n_embd)
        self.position_embedding_table = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[LectureBlock() for _ in range(2)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets=None):
        B, T = idx.shape
        tok_emb = self.token_embedding_table(idx)
        pos_emb = self.position_embedding_table(torch.arange(T, device=idx.device))
        x = self.blocks(tok_emb + pos_emb)
        logits = self.lm_head(self.ln_f(x))
        if targets is None:
            return logits, None
        B, T, C = logits.shape
        logits = logits.view(B * T, C)
        loss = F.cross_entropy(logits, targets.view(B * T))
        return logits, loss


# --- an assignment: every layer by hand, rotary angles in a buffer ------------------------------
class MyLinear(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        std = (2 / (d_in + d_out)) ** 0.5
        self.weight = nn.Parameter(nn.init.trunc_normal_(torch.empty(d_out, d_in), std=std))

    def forward(self, x):
        return torch.einsum("...i,oi->...o", x, self.weight)


class MyRMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x):
        rms = torch.sqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return x / rms * self.gain


class RotaryPositionalEmbedding(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        inv = theta ** (-torch.arange(0, d_k, 2) / d_k)
        angle = torch.arange(max_seq_len)[:, None] * inv[None, :]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x, token_positions):
        cos, sin = self.cos[token_positions], self.sin[token_positions]
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2)


def assignment_sdpa(Q, K, V, mask=None):
    scores = torch.einsum("...qd,...kd->...qk", Q, K) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, float("-inf"))
    top = scores.max(dim=-1, keepdim=True).values
    weights = torch.exp(scores - top)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return torch.einsum("...qk,...kd->...qd", weights, V)


class AssignmentAttention(nn.Module):
    def __init__(self, d_model, num_heads, rope):
        super().__init__()
        self.num_heads, self.rope = num_heads, rope
        self.q_proj, self.k_proj = MyLinear(d_model, d_model), MyLinear(d_model, d_model)
        self.v_proj, self.output_proj = MyLinear(d_model, d_model), MyLinear(d_model, d_model)

    def forward(self, x):
        n = x.shape[-2]
        q = einops.rearrange(self.q_proj(x), "... n (h d) -> ... h n d", h=self.num_heads)
        k = einops.rearrange(self.k_proj(x), "... n (h d) -> ... h n d", h=self.num_heads)
        v = einops.rearrange(self.v_proj(x), "... n (h d) -> ... h n d", h=self.num_heads)
        positions = torch.arange(n, device=x.device)
        q, k = self.rope(q, positions), self.rope(k, positions)
        causal = positions[:, None] >= positions[None, :]
        out = assignment_sdpa(q, k, v, causal)
        return self.output_proj(einops.rearrange(out, "... h n d -> ... n (h d)"))


class AssignmentLM(nn.Module):
    def __init__(self, vocab_size=61, context_length=32, d_model=24, num_layers=2, num_heads=3, d_ff=40):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(vocab_size, d_model) * 0.1)
        rope = RotaryPositionalEmbedding(10000.0, d_model // num_heads, context_length)
        self.attns = nn.ModuleList([AssignmentAttention(d_model, num_heads, rope) for _ in range(num_layers)])
        self.ups = nn.ModuleList([MyLinear(d_model, d_ff) for _ in range(num_layers)])
        self.gates = nn.ModuleList([MyLinear(d_model, d_ff) for _ in range(num_layers)])
        self.downs = nn.ModuleList([MyLinear(d_ff, d_model) for _ in range(num_layers)])
        self.norms = nn.ModuleList([MyRMSNorm(d_model) for _ in range(2 * num_layers + 1)])
        self.lm_head = MyLinear(d_model, vocab_size)

    def forward(self, in_indices):
        x = self.embed[in_indices]
        for i, attn in enumerate(self.attns):
            x = x + attn(self.norms[2 * i](x))
            h = self.norms[2 * i + 1](x)
            gate = self.gates[i](h)
            x = x + self.downs[i](gate * torch.sigmoid(gate) * self.ups[i](h))
        return self.lm_head(self.norms[-1](x))


# --- the paper, line by line: clones, sublayer connections, log-probabilities ---------------------
def clones(module, n):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(n)])


def annotated_attention(query, key, value, mask=None, dropout=None):
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.attn = None
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        nbatches = query.size(0)
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        ]
        x, self.attn = annotated_attention(query, key, value, mask=mask, dropout=self.dropout)
        x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.w_2(self.dropout(self.w_1(x).relu()))


class SinusoidEncoding(nn.Module):
    def __init__(self, d_model, dropout, max_len=64):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(self, x):
        x = x + self.pe[:, : x.size(1)].requires_grad_(False)
        return self.dropout(x)


class PaperEncoderLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.self_attn, self.feed_forward = MultiHeadedAttention(4, size), FeedForward(size, 48)
        self.sublayer = clones(SublayerConnection(size, 0.1), 2)

    def forward(self, x, mask):
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, mask))
        return self.sublayer[1](x, self.feed_forward)


class PaperDecoderLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.self_attn, self.src_attn = MultiHeadedAttention(4, size), MultiHeadedAttention(4, size)
        self.feed_forward = FeedForward(size, 48)
        self.sublayer = clones(SublayerConnection(size, 0.1), 3)

    def forward(self, x, memory, src_mask, tgt_mask):
        m = memory
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        x = self.sublayer[1](x, lambda x: self.src_attn(x, m, m, src_mask))
        return self.sublayer[2](x, self.feed_forward)


class PaperTransformer(nn.Module):
    """forward(src, tgt, src_mask, tgt_mask) gives log-probabilities."""

    def __init__(self, src_vocab=53, tgt_vocab=53, d_model=24, N=2):
        super().__init__()
        self.d_model = d_model
        self.src_embed, self.tgt_embed = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
        self.position = SinusoidEncoding(d_model, 0.1)
        self.encoder = clones(PaperEncoderLayer(d_model), N)
        self.decoder = clones(PaperDecoderLayer(d_model), N)
        self.enc_norm, self.dec_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.generator = nn.Linear(d_model, tgt_vocab)

    def encode(self, src, src_mask):
        x = self.position(self.src_embed(src) * math.sqrt(self.d_model))
        for layer in self.encoder:
            x = layer(x, src_mask)
        return self.enc_norm(x)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        y = self.position(self.tgt_embed(tgt) * math.sqrt(self.d_model))
        for layer in self.decoder:
            y = layer(y, memory, src_mask, tgt_mask)
        return self.dec_norm(y)

    def forward(self, src, tgt, src_mask, tgt_mask):
        hidden = self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)
        return F.log_softmax(self.generator(hidden), dim=-1)


# --- a course on language: a small BERT with a dictionary of outputs -----------------------------
class MiniBertSelfAttention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.num_attention_heads, self.attention_head_size = heads, hidden // heads
        self.all_head_size = hidden
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.dropout = nn.Dropout(0.1)

    def transform(self, x, linear_layer):
        bs, seq_len = x.shape[:2]
        proj = linear_layer(x).view(bs, seq_len, self.num_attention_heads, self.attention_head_size)
        return proj.transpose(1, 2)

    def attention(self, key, query, value, attention_mask):
        S = query @ key.transpose(-1, -2)
        S = S / self.attention_head_size**0.5
        S = S + attention_mask
        S = self.dropout(nn.functional.softmax(S, dim=-1))
        V = (S @ value).transpose(1, 2).contiguous()
        return V.view(V.shape[0], V.shape[1], self.all_head_size)

    def forward(self, hidden_states, attention_mask):
        k = self.transform(hidden_states, self.key)
        v = self.transform(hidden_states, self.value)
        q = self.transform(hidden_states, self.query)
        return self.attention(k, q, v, attention_mask)


class MiniBertLayer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.self_attention = MiniBertSelfAttention(hidden, heads)
        self.attention_dense, self.attention_norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden, eps=1e-12)
        self.interm_dense, self.out_dense = nn.Linear(hidden, 48), nn.Linear(48, hidden)
        self.out_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.drop = nn.Dropout(0.1)

    def add_norm(self, before, output, dense, ln):
        return ln(before + self.drop(dense(output)))

    def forward(self, x, mask):
        x = self.add_norm(x, self.self_attention(x, mask), self.attention_dense, self.attention_norm)
        return self.add_norm(x, F.gelu(self.interm_dense(x)), self.out_dense, self.out_norm)


class MiniBert(nn.Module):
    def __init__(self, vocab=57, hidden=24, heads=4, layers=2):
        super().__init__()
        self.word_embedding = nn.Embedding(vocab, hidden, padding_idx=0)
        self.pos_embedding = nn.Embedding(48, hidden)
        self.tk_type_embedding = nn.Embedding(2, hidden)
        self.embed_layer_norm = nn.LayerNorm(hidden)
        self.embed_dropout = nn.Dropout(0.1)
        self.register_buffer("position_ids", torch.arange(48).unsqueeze(0))
        self.bert_layers = nn.ModuleList([MiniBertLayer(hidden, heads) for _ in range(layers)])
        self.pooler_dense = nn.Linear(hidden, hidden)

    def embed(self, input_ids):
        pos = self.pos_embedding(self.position_ids[:, : input_ids.size(1)])
        types = self.tk_type_embedding(torch.zeros_like(input_ids))
        return self.embed_dropout(self.embed_layer_norm(self.word_embedding(input_ids) + pos + types))

    def forward(self, input_ids, attention_mask):
        x = self.embed(input_ids)
        extended = attention_mask[:, None, None, :].to(x.dtype)
        extended = (1.0 - extended) * torch.finfo(x.dtype).min
        for layer in self.bert_layers:
            x = layer(x, extended)
        return {"last_hidden_state": x, "pooler_output": self.pooler_dense(x[:, 0]).tanh()}


# --- a tutorial of a university: qkv in one, chunks per head, post-norm --------------------------
def expand_mask(mask):
    if mask.ndim == 3:
        mask = mask.unsqueeze(1)
    while mask.ndim < 4:
        mask = mask.unsqueeze(0)
    return mask


class TutorialMHA(nn.Module):
    def __init__(self, input_dim=20, embed_dim=24, num_heads=4):
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.qkv_proj = nn.Linear(input_dim, 3 * embed_dim)
        self.o_proj = nn.Linear(embed_dim, input_dim)

    def forward(self, x, mask=None, return_attention=False):
        batch_size, seq_length, _ = x.size()
        if mask is not None:
            mask = expand_mask(mask)
        qkv = self.qkv_proj(x)
        qkv = qkv.reshape(batch_size, seq_length, self.num_heads, 3 * self.head_dim)
        qkv = qkv.permute(0, 2, 1, 3)
        q, k, v = qkv.chunk(3, dim=-1)
        attn_logits = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.head_dim)
        if mask is not None:
            attn_logits = attn_logits.masked_fill(mask == 0, -9e15)
        attention = F.softmax(attn_logits, dim=-1)
        values = torch.matmul(attention, v)
        values = values.permute(0, 2, 1, 3).reshape(batch_size, seq_length, self.embed_dim)
        o = self.o_proj(values)
        return (o, attention) if return_attention else o


# --- a book with code in four frameworks: heads folded into the batch, valid lengths ---------------
def masked_softmax(X, valid_lens):
    if valid_lens is None:
        return F.softmax(X, dim=-1)
    keys = torch.arange(X.size(-1), device=X.device)
    hidden = keys[None, None, :] >= valid_lens[:, None, None]
    return F.softmax(X.masked_fill(hidden, -1e6), dim=-1)


class FoldedAttention(nn.Module):
    def __init__(self, num_hiddens=24, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.W_q, self.W_k = nn.Linear(num_hiddens, num_hiddens), nn.Linear(num_hiddens, num_hiddens)
        self.W_v, self.W_o = nn.Linear(num_hiddens, num_hiddens), nn.Linear(num_hiddens, num_hiddens)

    def transpose_qkv(self, X):
        X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1)
        X = X.permute(0, 2, 1, 3)
        return X.reshape(-1, X.shape[2], X.shape[3])

    def transpose_output(self, X):
        X = X.reshape(-1, self.num_heads, X.shape[1], X.shape[2])
        X = X.permute(0, 2, 1, 3)
        return X.reshape(X.shape[0], X.shape[1], -1)

    def forward(self, queries, keys, values, valid_lens=None):
        q = self.transpose_qkv(self.W_q(queries))
        k = self.transpose_qkv(self.W_k(keys))
        v = self.transpose_qkv(self.W_v(values))
        if valid_lens is not None:
            valid_lens = torch.repeat_interleave(valid_lens, repeats=self.num_heads, dim=0)
        d = q.shape[-1]
        scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(d)
        out = torch.bmm(masked_softmax(scores, valid_lens), v)
        return self.W_o(self.transpose_output(out))


# --- a book about building one: a dictionary of settings --------------------------------------------
BOOK_CONFIG = {"vocab_size": 67, "context_length": 24, "emb_dim": 24, "n_heads": 4, "n_layers": 2, "drop_rate": 0.1}


class BookAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__()
        self.d_out, self.num_heads, self.head_dim = d_out, num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

    def forward(self, x):
        b, num_tokens, d_in = x.shape
        keys, queries, values = self.W_key(x), self.W_query(x), self.W_value(x)
        keys = keys.view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        values = values.view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        queries = queries.view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        attn_scores = queries @ keys.transpose(2, 3)
        mask_bool = self.mask.bool()[:num_tokens, :num_tokens]
        attn_scores.masked_fill_(mask_bool, -torch.inf)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        attn_weights = self.dropout(attn_weights)
        context_vec = (attn_weights @ values).transpose(1, 2)
        context_vec = context_vec.contiguous().view(b, num_tokens, self.d_out)
        return self.out_proj(context_vec)


class BookNorm(nn.Module):
    def __init__(self, emb_dim):
        super().__init__()
        self.eps = 1e-5
        self.scale, self.shift = nn.Parameter(torch.ones(emb_dim)), nn.Parameter(torch.zeros(emb_dim))

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)
        var = x.var(dim=-1, keepdim=True, unbiased=False)
        return self.scale * (x - mean) / torch.sqrt(var + self.eps) + self.shift


class BookBlock(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        width = cfg["emb_dim"]
        self.att = BookAttention(width, width, cfg["context_length"], cfg["drop_rate"], cfg["n_heads"])
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm1, self.norm2 = BookNorm(width), BookNorm(width)
        self.drop_shortcut = nn.Dropout(cfg["drop_rate"])

    def forward(self, x):
        shortcut = x
        x = self.drop_shortcut(self.att(self.norm1(x)))
        x = x + shortcut
        shortcut = x
        x = self.drop_shortcut(self.ff(self.norm2(x)))
        x = x + shortcut
        return x


class BookModel(nn.Module):
    def __init__(self, cfg=BOOK_CONFIG):
        super().__init__()
        self.tok_emb = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])
        self.pos_emb = nn.Embedding(cfg["context_length"], cfg["emb_dim"])
        self.drop_emb = nn.Dropout(cfg["drop_rate"])
        self.trf_blocks = nn.Sequential(*[BookBlock(cfg) for _ in range(cfg["n_layers"])])
        self.final_norm = BookNorm(cfg["emb_dim"])
        self.out_head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"], bias=False)

    def forward(self, in_idx):
        batch_size, seq_len = in_idx.shape
        tok_embeds = self.tok_emb(in_idx)
        pos_embeds = self.pos_emb(torch.arange(seq_len, device=in_idx.device))
        x = self.drop_emb(tok_embeds + pos_embeds)
        return self.out_head(self.final_norm(self.trf_blocks(x)))
