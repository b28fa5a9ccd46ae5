"""A GPT-2 forward pass in plain torch, head by head, that shares no code with the package."""

import math

import torch
import torch.nn.functional as F


def same(stage, layer, x):
    return x


def plain_gpt2(model, tokens, change=same):
    """Logits (T, V) of ids (T,); `change(stage, layer, x)` may replace what each stage gives."""
    p = dict(model.named_parameters())
    length = len(tokens)
    block = model.stack.blocks[0].attention
    heads, width = block.heads, block.head_width
    x = p["embedding.token.weight"][tokens] + p["embedding.position.table.weight"][:length]
    for layer in range(len(model.stack.blocks)):
        b = f"stack.blocks.{layer}."
        x = change("resid_pre", layer, x)
        n = change("attn_in", layer, _norm(p, b + "attention_norm", x))
        qkv = n @ p[b + "attention.project.weight"].T + p[b + "attention.project.bias"]
        q, k, v = (each.view(length, heads, width) for each in qkv.split(heads * width, dim=-1))
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = torch.stack([q[:, h] @ k[:, h].T / math.sqrt(width) for h in range(heads)])
        weights = change("weights", layer, scores.masked_fill(future, -math.inf).softmax(-1))
        outs = change("head_out", layer, torch.stack([weights[h] @ v[:, h] for h in range(heads)]))
        merged = torch.cat(list(outs), dim=-1)
        out = merged @ p[b + "attention.output.weight"].T + p[b + "attention.output.bias"]
        x = change("resid_mid", layer, x + change("attn_out", layer, out))
        n = _norm(p, b + "feed_forward_norm", x)
        up = n @ p[b + "feed_forward.up.weight"].T + p[b + "feed_forward.up.bias"]
        hidden = change("mlp_hidden", layer, F.gelu(up, approximate="tanh"))
        down = hidden @ p[b + "feed_forward.down.weight"].T + p[b + "feed_forward.down.bias"]
        x = change("resid_post", layer, x + change("mlp_out", layer, down))
    return _norm(p, "stack.norm", x) @ p["embedding.token.weight"].T


def _norm(p, name, x):
    centred = x - x.mean(-1, keepdim=True)
    scale = (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
    return centred / scale * p[name + ".weight"] + p[name + ".bias"]
