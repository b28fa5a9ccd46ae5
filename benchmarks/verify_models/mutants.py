"""Bugs planted in sources: the name of the bug, the source, and the texts that are replaced."""

from dataclasses import dataclass

from torch import nn

from verify_models.sources import SOURCES, Edit


@dataclass(frozen=True)
class Mutant:
    """One bug in one implementation."""

    bug: str
    source: str
    edits: tuple[Edit, ...]

    def model(self) -> nn.Module:
        return SOURCES[self.source].model(self.edits)


def m(bug: str, source: str, *edits: str) -> Mutant:
    """A mutant; texts come in pairs of old and new."""
    pairs = tuple((edits[at], edits[at + 1]) for at in range(0, len(edits), 2))
    return Mutant(bug, source, pairs)


SCALE = "* (1.0 / math.sqrt(k.size(-1)))"
FILL = 'att = att.masked_fill(self.bias[:T, :T] == 0, float("-inf"))  # type: ignore[index]'
SOFTMAX = "att = F.softmax(att, dim=-1)"
SDPA = "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)"
BMM = "scores = torch.bmm(q, k.transpose(1, 2)) / self.d_k**0.5"
SEED_MASK = "indices = torch.triu_indices(t, t, offset=1)"
SEED_FILL = 'dot[:, indices[0], indices[1]] = float("-inf")'
SEED_SOFTMAX = "dot = F.softmax(dot, dim=2)"
SEED_FOLD = "keys = keys.transpose(1, 2).contiguous().view(b * h, t, s)"
MATMUL2 = "torch.matmul(query, key.transpose(-1, -2)) * scaling"
MATMUL3 = "torch.matmul(query, key.transpose(2, 3)) * scaling"
LLAMA = "torch.matmul(query, key_states.transpose(2, 3)) * scaling"
HF_MASK = "attn_weights = attn_weights + attention_mask"
HF_SOFTMAX = "attn_weights = nn.functional.softmax(attn_weights, dim=-1)"
HF_DROP = "nn.functional.dropout(attn_weights, p=dropout, training=module.training)"
LLAMA_SOFTMAX = "nn.functional.softmax(attn_weights, dim=-1, dtype=torch.float32)"
OUR_SCORES = "scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])"
OUR_FILL = "scores = scores.masked_fill(~mask.table(q, k), -math.inf)  # eq. 13"
OUR_SOFTMAX = "return scores.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)"
TR_SCORES = "torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))"
TRIU = "mask = torch.ones(T, T, dtype=torch.bool, device=tokens.device).triu(1)"
LOSS = "logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1"

MUTANTS = (
    # --- information flow
    m("future-leak", "gpt", FILL, ""),
    m("future-leak", "gpt", "self.bias[:T, :T] == 0", "self.bias[:T, :T].tril(-1) + self.bias[:T, :T].roll(-1, 1) == 0"),
    m("future-leak", "gpt", "torch.tril(torch.ones(block_size, block_size))", "torch.tril(torch.ones(block_size, block_size), diagonal=1)"),
    m("future-leak", "gpt_attention", FILL, ""),
    m("future-leak", "rotary", ".tril()[-T:]", ".tril(1)[-T:]"),
    m("future-leak", "rotary", "causal[None] & real[:, None]", "real[:, None]"),
    m("future-leak", "seed_masked", SEED_FILL, "pass"),
    m("future-leak", "seed_masked", "offset=1", "offset=2"),
    m("future-leak", "seed_generator", "TransformerBlock(k, heads, mask=True)", "TransformerBlock(k, heads)"),
    m("future-leak", "torch_lm", "mask=mask, ", ""),
    m("future-leak", "torch_lm", ".triu(1)", ".triu(2)"),
    m("future-leak", "torch_attention", "attn_mask=mask, ", ""),
    m("future-leak", "translator", "x = layer(x, memory, src_mask, tgt_mask)", "x = layer(x, memory, src_mask, None)"),
    m("future-leak", "hf_gpt2", HF_MASK, "pass"),
    m("future-leak", "hf_llama", HF_MASK, "pass"),
    m("future-leak", "ours_kernel", OUR_FILL, "pass"),
    m("future-leak", "gpt", "x = x + self.mlp(self.ln_2(x))", "x = x + self.mlp(self.ln_2(x)) + x.roll(-1, 1) * 0.1"),
    m("future-leak-through-norm", "gpt", "x = x + self.attn(self.ln_1(x))", "x = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)\n        x = x + self.attn(self.ln_1(x))"),
    m("future-leak-through-norm", "rotary", "x.pow(2).mean(-1, keepdim=True)", "x.pow(2).mean((1, 2), keepdim=True)"),
    m("future-leak-through-norm", "seed_generator", "return self.norm2(fedforward + x)", "return F.instance_norm((fedforward + x).transpose(1, 2)).transpose(1, 2)"),
    m("future-leak-through-pooling", "gpt", "logits = self.head(self.ln_f(x))", "logits = self.head(self.ln_f(x + x.mean(dim=1, keepdim=True)))"),
    m("future-leak-through-pooling", "rotary", "logits = self.lm_head(self.norm(x))", "logits = self.lm_head(self.norm(x + x.amax(dim=1, keepdim=True)))"),
    m("future-leak-through-batch", "gpt", "self.ln_f = nn.LayerNorm(width)", "self.ln_f = nn.BatchNorm1d(width)", "self.head(self.ln_f(x))", "self.head(self.ln_f(x.transpose(1, 2)).transpose(1, 2))"),
    m("future-leak-through-batch", "seed_generator", "self.norm2 = nn.LayerNorm(k)", "self.norm2 = nn.BatchNorm1d(k)", "self.norm2(fedforward + x)", "self.norm2((fedforward + x).transpose(1, 2)).transpose(1, 2)"),
    m("batch-coupling", "torch_attention", "batch_first=True", "batch_first=False", "T = x.shape[1]", "T = x.shape[0]"),
    m("batch-coupling", "torch_encoder", "64, batch_first=True", "64", "src_key_padding_mask=hidden", ""),
    m("batch-coupling", "gpt", "x = x + self.mlp(self.ln_2(x))", "x = x + self.mlp(self.ln_2(x)) - x.mean(0)"),
    m("batch-coupling", "encoder", "weights = self.drop(scores.softmax(dim=-1))", "weights = self.drop(scores.softmax(dim=-1)).roll(1, 0)"),
    m("reach-too-short", "gpt", "torch.tril(torch.ones(block_size, block_size))", "torch.tril(torch.ones(block_size, block_size)).triu(-2)", "layers: int = 2", "layers: int = 1"),
    m("nan-row", "seed_masked", "offset=1", "offset=0"),
    m("reach-too-short", "torch_encoder", "return self.encoder(x,", "T = x.shape[1]\n        return self.encoder(x, torch.ones(T, T, dtype=torch.bool).triu(1),"),
    m("reach-too-short", "rotary", "| own)", ")", ".tril()[-T:]", ".tril(-1)[-T:]"),
    m("window-off-by-one", "gpt", "self.heads = heads", "self.heads = heads\n        self.window = 4", FILL, FILL + "\n        att = att.masked_fill(torch.ones(T, T).tril(-self.window - 1) == 1, float('-inf'))"),
    m("window-off-by-one", "rotary", "self.norm = RMSNorm(width)", "self.norm = RMSNorm(width)\n        self.sliding_window = 4", "mask = ((causal[None]", "causal = causal & ~causal.tril(-self.sliding_window + 1)\n        mask = ((causal[None]"),
    # --- masks
    m("padding-leak-left", "rotary", "mask = ((causal[None] & real[:, None]) | own)[:, None]", "mask = (causal[None] & (real | real.flip(1))[:, None] | own)[:, None]"),
    m("padding-leak-right", "encoder", "hidden = key_padding_mask.", "hidden = (key_padding_mask & key_padding_mask.roll(1, 1)).roll(-1, 1)."),
    m("padding-leak-right", "seed_classifier", "def forward(self, x: Tensor) -> Tensor:\n        tokens = self.token_emb(x)", "def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:\n        tokens = self.token_emb(x)", "x = self.tblocks(x)\n        x = self.toprobs(x.mean(dim=1))", "x = self.tblocks(x)\n        m = torch.ones(b, t) if attention_mask is None else attention_mask\n        x = self.toprobs((x * m[:, :, None]).sum(1) / m.sum(1, keepdim=True))"),
    m("padding-moves-positions", "rotary", "positions = (real.long().cumsum(1) - 1).clamp(min=0)[:, -T:]", "positions = torch.arange(start, total)[None].expand(B, T)", "x = self.embed(tokens)", "x = self.embed(tokens) + self.embed.weight[positions % 50] * 0.3"),
    m("mask-ignored", "rotary", "causal[None] & real[:, None]", "causal[None] & real[:, None].new_ones(real[:, None].shape)", "real.long().cumsum(1)", "torch.ones_like(real).long().cumsum(1)"),
    m("mask-ignored", "encoder", "if key_padding_mask is not None:", "if False:"),
    m("mask-ignored", "torch_encoder", "src_key_padding_mask=hidden", ""),
    m("mask-ignored", "hf_bert", HF_MASK, "pass"),
    m("mask-inverted", "encoder", "masked_fill(hidden, ", "masked_fill(~hidden, "),
    m("mask-inverted", "torch_encoder", "attention_mask == 0", "attention_mask == 1"),
    m("mask-inverted", "gpt", "== 0, float", "== 1, float", "torch.tril(torch.ones(block_size, block_size))", "torch.tril(torch.ones(block_size, block_size), -1)"),
    m("mask-inverted", "rotary", "mask = ((causal[None] & real[:, None]) | own)[:, None]", "mask = ~((causal[None] & real[:, None]) & ~own)[:, None]"),
    m("mask-inverted", "torch_lm", ".triu(1)", ".tril(-1)"),
    m("mask-broadcast-wrong", "encoder", "key_padding_mask.repeat_interleave(self.heads, dim=0)", "key_padding_mask.repeat(self.heads, 1)"),
    m("mask-broadcast-wrong", "torch_encoder", "attention_mask == 0", "(attention_mask == 0).roll(1, 0)"),
    m("mask-broadcast-wrong", "rotary", "causal[None] & real[:, None]", "causal[None] & real.any(0)[None, None].expand(B, 1, -1) & real[:1, None]"),
    m("mask-lost-on-slow-path", "gpt", FILL, 'att = att if self.training else att.masked_fill(self.bias[:T, :T] == 0, float("-inf"))'),
    m("mask-lost-on-slow-path", "rotary", SDPA, SDPA.replace("mask=mask", "mask=None if p else mask")),
    m("mask-lost-on-slow-path", "torch_lm", "mask=mask, src_key_padding_mask=padding_mask", "mask=mask if padding_mask is None else None, src_key_padding_mask=padding_mask"),
    m("mask-lost-on-slow-path", "encoder", "if key_padding_mask is not None:", "if key_padding_mask is not None and not self.training:"),
    m("mask-lost-on-slow-path", "hf_gpt2", "if attention_mask is not None:\n        attn_weights", "if attention_mask is not None and not module.training:\n        attn_weights"),
    m("mask-lost-on-slow-path", "ours_attention", "y = self.kernel(q, k, v, mask, bias", "y = self.kernel(q, k, v, Mask() if self.training else mask, bias"),
    m("finite-mask", "gpt", 'float("-inf")', "-1e4"),
    m("finite-mask", "seed_masked", 'float("-inf")', "-100.0"),
    m("finite-mask", "encoder", "torch.finfo(scores.dtype).min", "-10000.0"),
    m("finite-mask", "translator", "-1e9", "-50.0"),
    m("finite-mask", "hf_bert", HF_MASK, "attn_weights = attn_weights + attention_mask.clamp(min=-10000.0)"),
    m("finite-mask", "gpt", FILL, "att = att * self.bias[:T, :T]"),
    m("finite-mask", "gpt", FILL, "att = torch.tril(att)"),
    m("nan-row", "rotary", "| own)", ")", SDPA, "s = (q @ k.transpose(-2, -1) * self.head_dim**-0.5).masked_fill(~mask, float('-inf'))\n        y = s.softmax(-1) @ v"),
    m("nan-row", "gpt", "torch.tril(torch.ones(block_size, block_size))", "torch.tril(torch.ones(block_size, block_size), diagonal=-1)"),
    m("causal-aligned-top-left", "rotary", ".tril()[-T:]", ".tril()[:T]"),
    m("causal-aligned-top-left", "rotary", SDPA, "y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=T > 1)"),
    # --- arithmetic
    m("scale-missing", "gpt", SCALE, ""),
    m("scale-missing", "seed", "dot = dot / (s ** (1 / 2))", ""),
    m("scale-missing", "seed_second", "/ norm_dot", ""),
    m("scale-missing", "encoder", " / self.d_k**0.5", ""),
    m("scale-missing", "rotary", "dropout_p=p)", "dropout_p=p, scale=1.0)"),
    m("scale-missing", "translator", " / math.sqrt(q.size(-1))", ""),
    m("scale-missing", "hf_gpt2", MATMUL2, MATMUL2.replace(" * scaling", "")),
    m("scale-missing", "hf_bert", MATMUL3, MATMUL3.replace(" * scaling", "")),
    m("scale-missing", "hf_llama", LLAMA, LLAMA.replace(" * scaling", "")),
    m("scale-missing", "ours_kernel", OUR_SCORES, "scores = q @ k.transpose(-2, -1)"),
    m("scale-by-model-width", "gpt", "k.size(-1)", "C"),
    m("scale-by-model-width", "seed", "(s ** (1 / 2))", "(k ** (1 / 2))"),
    m("scale-by-model-width", "seed_second", "torch.tensor(self.chunk_dim)", "torch.tensor(self.l)"),
    m("scale-by-model-width", "encoder", "self.d_k**0.5", "E**0.5"),
    m("scale-by-model-width", "rotary", "dropout_p=p)", "dropout_p=p, scale=x.shape[-1] ** -0.5)"),
    m("scale-by-model-width", "hf_bert", "self.attention_head_size**-0.5", "self.all_head_size**-0.5"),
    m("scale-by-model-width", "ours_kernel", "math.sqrt(q.shape[-1])", "math.sqrt(q.shape[-1] * q.shape[1])"),
    m("scale-applied-twice", "gpt", "att = (q @ k", "q = q / math.sqrt(k.size(-1))\n        att = (q @ k"),
    m("scale-applied-twice", "rotary", SDPA, "q = q * self.head_dim**-0.5\n        " + SDPA),
    m("scale-applied-twice", "ours_attention", "q, bias = self.scheme.score(q, k, self.position)", "q, bias = self.scheme.score(q, k, self.position)\n        q = q / self.head_width**0.5"),
    m("scale-applied-twice", "seed", "(s ** (1 / 2))", "s"),
    m("scale-inverted", "gpt", "* (1.0 / math.sqrt(k.size(-1)))", "* math.sqrt(k.size(-1))"),
    m("softmax-axis", "gpt", "F.softmax(att, dim=-1)", "F.softmax(att, dim=-2)"),
    m("softmax-axis", "seed", "dim=2)", "dim=1)"),
    m("softmax-axis", "seed_masked", SEED_SOFTMAX, "dot = F.softmax(dot, dim=0)"),
    m("softmax-axis", "encoder", "softmax(dim=-1)", "softmax(dim=1)"),
    m("softmax-axis", "translator", "softmax(dim=-1)", "softmax(dim=1)"),
    m("softmax-axis", "hf_gpt2", HF_SOFTMAX, HF_SOFTMAX.replace("-1", "1")),
    m("softmax-axis", "hf_llama", LLAMA_SOFTMAX, LLAMA_SOFTMAX.replace("-1", "-2")),
    m("softmax-axis", "ours_kernel", "softmax(dim=-1)", "softmax(dim=-2)"),
    m("softmax-before-mask", "gpt", FILL + "\n", "\n", SOFTMAX, SOFTMAX + "\n        att = att.masked_fill(self.bias[:T, :T] == 0, 0.0)"),
    m("softmax-before-mask", "gpt", FILL + "\n", "\n", SOFTMAX, SOFTMAX + " * self.bias[:T, :T]"),
    m("softmax-before-mask", "seed_masked", SEED_FILL, "pass", SEED_SOFTMAX, "dot = torch.tril(F.softmax(dot, dim=2))"),
    m("softmax-before-mask", "hf_gpt2", HF_MASK, "pass", HF_SOFTMAX, HF_SOFTMAX + "; attn_weights = attn_weights * (attention_mask > -1)"),
    m("heads-mixed-by-view", "gpt", "q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)", "q = q.reshape(B, self.heads, T, C // self.heads)"),
    m("heads-mixed-by-view", "gpt", "y = y.transpose(1, 2).contiguous().view(B, T, C)", "y = y.contiguous().view(B, T, C)"),
    m("heads-mixed-by-view", "seed", SEED_FOLD, "keys = keys.contiguous().view(b * h, t, s)"),
    m("heads-mixed-by-view", "seed", "out = out.transpose(1, 2).contiguous()", "out = out.contiguous()"),
    m("heads-mixed-by-view", "encoder", ".permute(0, 2, 1, 3).reshape", ".reshape"),
    m("heads-mixed-by-view", "translator", "x = x.transpose(1, 2).contiguous().view", "x = x.contiguous().view"),
    m("heads-mixed-by-view", "hf_gpt2", "attn_output = attn_output.transpose(1, 2)\n", "pass\n"),
    m("heads-slice-time", "seed_second", "q[:, :, part] @ k[:, :, part]", "q[:, part] @ k[:, part]", "v[:, :, part]", "v[:, part]"),
    m("qk-swapped-cross", "translator", "self.src_attn(self.norms[1](x), memory, memory, src_mask)", "self.src_attn(memory, self.norms[1](x), self.norms[1](x), None).mean(1, keepdim=True)"),
    m("value-projection-shared", "seed", "values = self.tovalues(x)", "values = self.tokeys(x)"),
    m("value-projection-shared", "encoder", "self.split(self.value(x))", "self.split(self.key(x))"),
    m("value-projection-shared", "hf_bert", "value_layer = self.value(hidden_states)", "value_layer = self.key(hidden_states)"),
    m("key-projection-shared", "seed_second", "k = self.k_mat(x)", "k = self.q_mat(x)"),
    m("residual-missing", "gpt", "x = x + self.attn(self.ln_1(x))", "x = self.attn(self.ln_1(x))"),
    m("residual-missing", "gpt", "x = x + self.mlp(self.ln_2(x))", "x = self.mlp(self.ln_2(x))"),
    m("residual-missing", "rotary", "x = x + y", "x = y"),
    m("residual-missing", "encoder", "return self.norm2(x + self.feed_forward(x))", "return self.norm2(self.feed_forward(x))"),
    m("residual-missing", "seed_generator", "self.norm1(attended + x)", "self.norm1(attended)"),
    m("norm-misplaced", "pre_encoder", "            x = x + self.attention(self.norm1(x), key_padding_mask)\n            return x + self.feed_forward(self.norm2(x))", "            x = self.norm1(x + self.attention(x, key_padding_mask))\n            return self.norm2(x + self.feed_forward(x))"),
    m("norm-over-time", "encoder", "return self.norm2(x + self.feed_forward(x))", "y = x + self.feed_forward(x)\n        return (y - y.mean(1, keepdim=True)) / y.std(1, keepdim=True)"),
    m("norm-over-time", "seed_classifier", "return self.norm2(fedforward + x)", "return F.layer_norm(fedforward + x, (fedforward + x).shape[1:])"),
    m("tied-weights-broken", "gpt", "self.head.weight = self.wte.weight", "self.head.weight.data = self.wte.weight.data.clone()"),
    # --- positions
    m("permutation-equivariant", "gpt", "self.wte(idx) + self.wpe(pos)", "self.wte(idx)"),
    m("permutation-equivariant", "seed_generator", "x = tokens + positions", "x = tokens"),
    m("permutation-equivariant", "encoder", "+ self.pe[: x.shape[1]]", ""),
    m("permutation-equivariant", "torch_encoder", "+ self.pos(torch.arange(tokens.shape[1], device=tokens.device))", ""),
    m("permutation-equivariant", "hf_bert", "embeddings = embeddings + position_embeddings", "pass"),
    m("positions-not-offset-in-cache", "rotary", "[:, -T:]\n        causal", "[:, :T]\n        causal"),
    m("positions-not-offset-in-cache", "ours_attention", "end=cache.start + x.shape[1])", "end=x.shape[1])", "self.scheme.rotate(self.query_norm(q), at_q)", "self.query_norm(q) * (1 + at_q[:, None])"),
    m("rotary-pairs", "rotary", "torch.cat((turn, turn), dim=-1)", "turn.repeat_interleave(2, dim=-1)"),
    m("rotary-pairs", "hf_llama", "q_embed = (q * cos) + (rotate_half(q) * sin)", "q_embed = (q * cos) + (q.flip(-1) * sin)"),
    m("rotary-on-values", "rotary", "if past is not None:\n            k = torch", "v = rotate(v, positions, self.inv_freq)\n        if past is not None:\n            k = torch"),
    m("sinusoid-frequency", "encoder", "torch.arange(0, width, 2).float() * (-math.log", "torch.arange(0, width, 2).float() / 2 * (-math.log"),
    m("sinusoid-frequency", "translator", "torch.cos(position * div_term)", "torch.cos(position * div_term * 0.5)"),
    m("sinusoid-frequency", "rotary", "torch.arange(0, width, 2).float() / width", "torch.arange(0, width, 2).float() / width / 2"),
    m("positions-past-length-wrap", "gpt", "assert self.block_size >= T", "assert 4096 >= T", "pos = torch.arange(T, device=idx.device)", "pos = torch.arange(T, device=idx.device) % self.block_size", "self.bias[:T, :T] == 0", "torch.ones(T, T).tril() == 0"),
    # --- cache
    m("cache-differs", "rotary", "v = torch.cat((past[1], v), dim=2)", "v = torch.cat((past[1].roll(1, 2), v), dim=2)"),
    m("cache-differs", "rotary", "present = (k, v)", "present = (k[:, :, -4:], v[:, :, -4:])"),
    m("cache-mutated-in-place", "rotary", "present = (k, v)", "present = (k, v)\n        if past is not None:\n            past[0].mul_(0.5)"),
    m("cache-mutated-in-place", "gpt", "q, k, v = self.qkv(x).split(C, dim=2)", "q, k, v = self.qkv(x).split(C, dim=2)\n        v = v + getattr(self, 'memory', 0.0)\n        self.memory = v.mean((0, 1)).detach()"),
    m("cache-shared-between-rows", "rotary", "k = torch.cat((past[0], k), dim=2)", "k = torch.cat((past[0][:1].expand_as(past[0]), k), dim=2)"),
    # --- training
    m("loss-not-shifted", "hf_gpt2", "loss = self.loss_function(", "loss = (lambda a, b, **_: nn.functional.cross_entropy(a.flatten(0, 1), b.flatten()))("),
    m("loss-shifted-twice", "gpt", LOSS, "logits[:, :-2].reshape(-1, logits.size(-1)), targets[:, 2:].reshape(-1), ignore_index=-1"),
    m("loss-shifted-twice", "hf_llama", "loss = self.loss_function(logits=logits, labels=labels,", "loss = self.loss_function(logits=logits[:, :-1].contiguous(), labels=labels[:, 1:].contiguous(),"),
    m("loss-counts-padding", "gpt", LOSS + "\n            )", LOSS + ", reduction='none'\n            ).mean()"),
    m("mean-of-means", "gpt", "loss = F.cross_entropy(\n                " + LOSS + "\n            )", "each = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=-1, reduction='none')\n            loss = (each.sum(1) / (targets != -1).sum(1)).mean()"),
    m("initial-loss", "gpt", "self.apply(self.init_weights)", ""),
    m("dead-parameters", "gpt", "return self.resid_dropout(self.proj(y))", "return self.resid_dropout(y)"),
    m("dead-parameters", "rotary", "F.silu(self.gate(h)) * self.up(h)", "F.silu(self.gate(h)) * self.up(h).detach()"),
    m("dropout-in-eval", "gpt", "att = self.attn_dropout(att)", "att = F.dropout(att, 0.1)"),
    m("dropout-in-eval", "rotary", "p = self.dropout if self.training else 0.0", "p = self.dropout"),
    m("dropout-in-eval", "hf_bert", HF_DROP, "nn.functional.dropout(attn_weights, p=0.1)"),
    m("dropout-in-eval", "ours_attention", "self.dropout if self.training else 0.0", "0.1"),
    m("dropout-on-scores", "gpt", SOFTMAX, "att = F.softmax(self.attn_dropout(att), dim=-1)", "att = self.attn_dropout(att)\n        y", "y"),
    m("dropout-on-scores", "encoder", "self.drop(scores.softmax(dim=-1))", "self.drop(scores).softmax(dim=-1)"),
    m("dropout-not-applied", "gpt", "att = self.attn_dropout(att)\n", "\n"),
    m("dropout-not-applied", "rotary", "p = self.dropout if self.training else 0.0", "p = 0.0"),
    m("eval-nondeterministic", "gpt", "x = self.drop(self.wte(idx) + self.wpe(pos))", "x = self.wte(idx) + self.wpe(pos)\n        x = x + 0.01 * torch.randn_like(x)"),
    m("eval-nondeterministic", "seed", "return self.unifyheads(out)", "return self.unifyheads(out + torch.rand_like(out))"),
    m("gradient-through-memory", "gpt", "self, idx: Tensor, targets: Tensor | None = None", "self, idx: Tensor, targets: Tensor | None = None, mems: Tensor | None = None", "return logits, loss", "return logits, x"),
    m("half-precision-overflow", "gpt", "att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))", "att = ((q * 4e3) @ (k * 4e3).transpose(-2, -1)) * (1 / 1.6e7 / math.sqrt(k.size(-1)))", "std=0.02", "std=0.3"),
    m("checkpointing-changes-gradient", "gpt", "self.block_size = block_size", "self.block_size = block_size\n        self.use_checkpoint = False", "x = block(x)", "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False, preserve_rng_state=False) if self.use_checkpoint else block(x)", "import torch\n", "import torch\nimport torch.utils.checkpoint\n"),
)  # fmt: skip
