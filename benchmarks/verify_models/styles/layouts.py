# mypy: ignore-errors
"""Other layouts: time first, images, source and target, vectors of a series, wrapped layers."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


# --- a tutorial's word model: torch's encoder, time first, the mask is passed in ----------------------
class TimeFirstPositions(nn.Module):
    def __init__(self, d_model, max_len=64):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div)
        pe[:, 0, 1::2] = torch.cos(position * div)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(0)]


class WordLanguageModel(nn.Module):
    def __init__(self, ntoken=47, ninp=24, nhead=4, nhid=40, nlayers=2):
        super().__init__()
        self.pos_encoder = TimeFirstPositions(ninp)
        layer = nn.TransformerEncoderLayer(ninp, nhead, nhid, 0.1)
        self.transformer_encoder = nn.TransformerEncoder(layer, nlayers, enable_nested_tensor=False)
        self.encoder, self.decoder = nn.Embedding(ntoken, ninp), nn.Linear(ninp, ntoken)
        self.ninp = ninp

    def forward(self, src, has_mask=True):
        mask = None
        if has_mask:
            mask = torch.log(torch.tril(torch.ones(len(src), len(src), dtype=self.decoder.weight.dtype)))
        x = self.pos_encoder(self.encoder(src) * math.sqrt(self.ninp))
        return F.log_softmax(self.decoder(self.transformer_encoder(x, mask=mask)), dim=-1)


# --- a translation toolkit: batch first outside, time first inside ---------------------------------------
class ToolkitAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.k_proj, self.v_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.q_proj, self.out_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.dropout = dropout

    def forward(self, query, key, key_padding_mask=None, attn_mask=None):
        tgt_len, bsz, embed_dim = query.size()
        src_len = key.size(0)
        q = self.q_proj(query) * self.scaling
        k, v = self.k_proj(key), self.v_proj(key)
        q = q.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        k = k.contiguous().view(src_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        v = v.contiguous().view(src_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        attn_weights = torch.bmm(q, k.transpose(1, 2))
        if attn_mask is not None:
            attn_weights = attn_weights + attn_mask.unsqueeze(0)
        if key_padding_mask is not None:
            attn_weights = attn_weights.view(bsz, self.num_heads, tgt_len, src_len)
            attn_weights = attn_weights.masked_fill(key_padding_mask[:, None, None, :], float("-inf"))
            attn_weights = attn_weights.view(bsz * self.num_heads, tgt_len, src_len)
        attn_weights = F.softmax(attn_weights, dim=-1)
        attn_probs = F.dropout(attn_weights, p=self.dropout, training=self.training)
        attn = torch.bmm(attn_probs, v)
        attn = attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
        return self.out_proj(attn)


class ToolkitSeq2Seq(nn.Module):
    def __init__(self, words=47, dim=24, heads=4, pad=1):
        super().__init__()
        self.padding_idx = pad
        self.enc_emb, self.dec_emb = nn.Embedding(words, dim, padding_idx=pad), nn.Embedding(words, dim, padding_idx=pad)
        self.places = nn.Embedding(64, dim)
        self.enc_attn, self.dec_attn, self.cross_attn = (ToolkitAttention(dim, heads, 0.1) for _ in range(3))
        self.enc_ff = nn.Sequential(nn.Linear(dim, 40), nn.ReLU(), nn.Linear(40, dim))
        self.dec_ff = nn.Sequential(nn.Linear(dim, 40), nn.ReLU(), nn.Linear(40, dim))
        self.ln = nn.ModuleList([nn.LayerNorm(dim) for _ in range(5)])
        self.output_projection = nn.Linear(dim, words, bias=False)

    def forward(self, src_tokens, prev_output_tokens):
        pad = src_tokens.eq(self.padding_idx)
        x = (self.enc_emb(src_tokens) + self.places(torch.arange(src_tokens.size(1)))).transpose(0, 1)
        x = self.ln[0](x + self.enc_attn(x, x, key_padding_mask=pad))
        x = self.ln[1](x + self.enc_ff(x))
        y = (self.dec_emb(prev_output_tokens) + self.places(torch.arange(prev_output_tokens.size(1)))).transpose(0, 1)
        future = torch.triu(torch.full((y.size(0), y.size(0)), float("-inf"), dtype=y.dtype), 1)
        y = self.ln[2](y + self.dec_attn(y, y, attn_mask=future))
        y = self.ln[3](y + self.cross_attn(y, x, key_padding_mask=pad))
        y = self.ln[4](y + self.dec_ff(y))
        return self.output_projection(y.transpose(0, 1)), None


# --- torch's Transformer, wrapped ------------------------------------------------------------------------
class WrappedTransformer(nn.Module):
    def __init__(self, src_vocab=47, trg_vocab=47, emb=24, heads=4, pad_idx=0, max_len=64):
        super().__init__()
        self.src_word, self.src_place = nn.Embedding(src_vocab, emb), nn.Embedding(max_len, emb)
        self.trg_word, self.trg_place = nn.Embedding(trg_vocab, emb), nn.Embedding(max_len, emb)
        self.transformer = nn.Transformer(emb, heads, 1, 1, 40, 0.1, batch_first=True)
        self.fc_out = nn.Linear(emb, trg_vocab)
        self.src_pad_idx = pad_idx

    def forward(self, src, trg):
        s, t = src.shape[1], trg.shape[1]
        hide = src == self.src_pad_idx
        ahead = self.transformer.generate_square_subsequent_mask(t).to(self.fc_out.weight.dtype)
        ahead = ahead.isinf()
        out = self.transformer(
            self.src_word(src) + self.src_place(torch.arange(s)),
            self.trg_word(trg) + self.trg_place(torch.arange(t)),
            tgt_mask=ahead, src_key_padding_mask=hide, memory_key_padding_mask=hide,
        )
        return self.fc_out(out)


# --- layers of another framework: einsum kernels (width, heads, head width) --------------------------------
class EinsumDense(nn.Module):
    def __init__(self, equation, shape, bias_shape):
        super().__init__()
        self.equation = equation
        self.kernel = nn.Parameter(torch.randn(*shape) * 0.1)
        self.bias = nn.Parameter(torch.zeros(*bias_shape))

    def forward(self, inputs):
        return torch.einsum(self.equation, inputs, self.kernel) + self.bias


class KeyDimAttention(nn.Module):
    """call(query, value, key=None, attention_mask=None, use_causal_mask=...)."""

    def __init__(self, num_heads=4, key_dim=8, features=24, dropout=0.1, use_causal_mask=True):
        super().__init__()
        self.use_causal_mask, self.key_dim = use_causal_mask, key_dim
        self.query_dense = EinsumDense("btf,fnh->btnh", (features, num_heads, key_dim), (num_heads, key_dim))
        self.key_dense = EinsumDense("bsf,fnh->bsnh", (features, num_heads, key_dim), (num_heads, key_dim))
        self.value_dense = EinsumDense("bsf,fnh->bsnh", (features, num_heads, key_dim), (num_heads, key_dim))
        self.output_dense = EinsumDense("btnh,nhf->btf", (num_heads, key_dim, features), (features,))
        self.dropout_layer = nn.Dropout(dropout)

    def forward(self, query, value, key=None):
        key = value if key is None else key
        q = self.query_dense(query) * (1.0 / math.sqrt(float(self.key_dim)))
        k, v = self.key_dense(key), self.value_dense(value)
        scores = torch.einsum("btnh,bsnh->bnts", q, k)
        if self.use_causal_mask:
            t, s = scores.shape[-2:]
            allowed = torch.arange(t).unsqueeze(-1) >= torch.arange(s)
            scores = scores + (1.0 - allowed.to(scores.dtype)) * -1e30
        scores = self.dropout_layer(torch.softmax(scores, dim=-1))
        return self.output_dense(torch.einsum("bnts,bsnh->btnh", scores, v))


# --- the layout (batch, time, heads, width) of memory-efficient kernels ------------------------------------
def efficient_attention(query, key, value, attn_bias=None, p=0.0, scale=None):
    """(B, M, H, K) in and out."""
    q, k, v = (t.permute(0, 2, 1, 3) for t in (query, key, value))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_bias, dropout_p=p, scale=scale)
    return out.permute(0, 2, 1, 3)


class EfficientBlock(nn.Module):
    def __init__(self, dim=24, num_heads=3, mlp_ratio=2, p=0.1, causal=True):
        super().__init__()
        self.num_heads, self.causal, self.p = num_heads, causal, p
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, dim * 3, bias=False), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * mlp_ratio), nn.GELU(), nn.Linear(dim * mlp_ratio, dim))

    def forward(self, x):
        B, M, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(B, M, 3, self.num_heads, -1).unbind(2)
        bias = None
        if self.causal:
            bias = torch.zeros(M, M, dtype=x.dtype)
            bias[torch.ones(M, M, dtype=torch.bool).triu(1)] = float("-inf")
        y = efficient_attention(q, k, v, attn_bias=bias, p=self.p if self.training else 0.0)
        x = x + self.proj(y.reshape(B, M, C))
        return x + self.mlp(self.norm2(x))


# --- pictures: patches by a convolution, a class token, layer scale -------------------------------------------
class PictureTransformer(nn.Module):
    def __init__(self, img_size=16, patch_size=4, in_chans=3, num_classes=5, embed_dim=24, num_heads=3, depth=2):
        super().__init__()
        self.num_heads = num_heads
        self.patch_embed = nn.Conv2d(in_chans, embed_dim, patch_size, stride=patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.pos_embed = nn.Parameter(torch.randn(1, (img_size // patch_size) ** 2 + 1, embed_dim) * 0.02)
        self.qkvs = nn.ModuleList([nn.Linear(embed_dim, 3 * embed_dim) for _ in range(depth)])
        self.projs = nn.ModuleList([nn.Linear(embed_dim, embed_dim) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(embed_dim) for _ in range(depth + 1)])
        self.gamma = nn.Parameter(torch.full((depth, embed_dim), 1e-5))
        self.head = nn.Linear(embed_dim, num_classes)

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
        B, N, C = x.shape
        for i in range(len(self.qkvs)):
            qkv = self.qkvs[i](self.norms[i](x)).reshape(B, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
            attn = (qkv[0] * (C // self.num_heads) ** -0.5) @ qkv[1].transpose(-2, -1)
            y = (attn.softmax(dim=-1) @ qkv[2]).transpose(1, 2).reshape(B, N, C)
            x = x + self.gamma[i] * self.projs[i](y)
        return self.head(self.norms[-1](x)[:, 0])


# --- a series of numbers: forecasts from vectors -----------------------------------------------------------------
class SeriesForecaster(nn.Module):
    def __init__(self, n_features=5, d_model=24, nhead=3, horizon=2):
        super().__init__()
        self.input_layer = nn.Linear(n_features, d_model)
        self.pos = nn.Parameter(torch.randn(64, d_model) * 0.1)
        layer = nn.TransformerEncoderLayer(d_model, nhead, 40, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(d_model, horizon)

    def forward(self, series):
        h = self.input_layer(series) + self.pos[: series.shape[1]]
        causal = nn.Transformer.generate_square_subsequent_mask(series.shape[1]).to(h)
        return self.out(self.enc(h, mask=causal, is_causal=True))


# --- positions that skip padding, as in RoBERTa; a masked language model -----------------------------------------
class CountedPositionsMLM(nn.Module):
    def __init__(self, vocab=47, hidden=24, heads=3, pad_token_id=1):
        super().__init__()
        self.pad_token_id = pad_token_id
        self.word, self.place = nn.Embedding(vocab, hidden, padding_idx=pad_token_id), nn.Embedding(64, hidden, padding_idx=pad_token_id)
        self.attn = nn.MultiheadAttention(hidden, heads, dropout=0.1, batch_first=True)
        self.ln1, self.ln2, self.ln3 = nn.LayerNorm(hidden), nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.ff = nn.Sequential(nn.Linear(hidden, 40), nn.GELU(), nn.Linear(40, hidden))
        nn.init.normal_(self.word.weight, std=0.02)
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, input_ids, attention_mask=None, labels=None):
        if attention_mask is None:
            attention_mask = input_ids.ne(self.pad_token_id)
        real = attention_mask.long()
        position_ids = torch.cumsum(real, dim=1) * real + self.pad_token_id
        x = self.ln1(self.word(input_ids) + self.place(position_ids))
        hide = ~attention_mask.bool()
        x = self.ln2(x + self.attn(x, x, x, key_padding_mask=hide, need_weights=False)[0])
        x = self.ln3(x + self.ff(x))
        logits = F.linear(x, self.word.weight, self.bias)
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return {"loss": loss, "logits": logits}


# --- latents that read a sequence ---------------------------------------------------------------------------------
class LatentReader(nn.Module):
    def __init__(self, dim=24, latents=6, heads=4):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(latents, dim))
        self.read = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.think = nn.TransformerEncoderLayer(dim, heads, 40, batch_first=True)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        q = self.latents.expand(x.shape[0], -1, -1)
        return self.think(q + self.read(q, self.norm(x), self.norm(x), need_weights=False)[0])


# --- T5-like: relative buckets, targets shifted inside, loss inside -----------------------------------------------
class RelativeSeq2Seq(nn.Module):
    def __init__(self, vocab=47, dim=24, heads=3, pad=0):
        super().__init__()
        self.heads, self.pad = heads, pad
        self.shared = nn.Embedding(vocab, dim)
        self.enc_bias, self.dec_bias = nn.Embedding(17, heads), nn.Embedding(17, heads)
        self.enc_qkv, self.dec_qkv, self.cross_q, self.cross_kv = nn.Linear(dim, 3 * dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.enc_o, self.dec_o, self.cross_o = (nn.Linear(dim, dim) for _ in range(3))
        self.n1, self.n2, self.n3, self.n4 = (nn.RMSNorm(dim) for _ in range(4))
        self.lm_head = nn.Linear(dim, vocab)

    def heads_of(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def relative(self, table, n):
        i = torch.arange(n)
        return table((i[None, :] - i[:, None]).clamp(-8, 8) + 8).permute(2, 0, 1)

    def attend(self, q, k, v, bias):
        s = self.heads_of(q) @ self.heads_of(k).mT * (q.shape[-1] // self.heads) ** -0.5 + bias
        return (s.softmax(-1) @ self.heads_of(v)).transpose(1, 2).flatten(2)

    def forward(self, input_ids, decoder_input_ids, labels=None):
        x = self.shared(input_ids)
        h = self.n1(x)
        x = x + self.enc_o(self.attend(*self.enc_qkv(h).chunk(3, -1), self.relative(self.enc_bias, x.shape[1])))
        memory = self.n2(x)
        y = self.shared(decoder_input_ids)
        n = y.shape[1]
        bias = self.relative(self.dec_bias, n).masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
        y = y + self.dec_o(self.attend(*self.dec_qkv(self.n3(y)).chunk(3, -1), bias))
        y = y + self.cross_o(self.attend(self.cross_q(self.n4(y)), *self.cross_kv(memory).chunk(2, -1), 0.0))
        logits = self.lm_head(y)
        if labels is None:
            return {"logits": logits}
        return {"logits": logits, "loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)}


# --- a layer for a graph of sentences: pairs of sentences through one encoder ---------------------------------------
class PairScorer(nn.Module):
    def __init__(self, vocab=47, dim=24, heads=3, pad=0):
        super().__init__()
        self.pad = pad
        self.tok, self.pos = nn.Embedding(vocab, dim, padding_idx=pad), nn.Embedding(64, dim)
        self.layer = nn.TransformerEncoderLayer(dim, heads, 40, batch_first=True)
        self.score = nn.Linear(dim, 1)

    def forward(self, tokens):
        hide = tokens == self.pad
        x = self.layer(self.tok(tokens) + self.pos(torch.arange(tokens.shape[1])), src_key_padding_mask=hide)
        x = x.masked_fill(hide.unsqueeze(-1), 0).sum(1) / (~hide).sum(1, keepdim=True).clamp(min=1)
        return self.score(x)
