"""Source code of clearformer, highlighted for the page.

Only the symbols of this list can be requested: a client names a symbol, never a file.
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import clearformer
from clearformer.http_server.errors import unknown

# The symbol for each element of the page.
STAGES = {
    "tokens": "text.tokenizer.Tokenizer",
    "embedding": "core.embedding.Embedding.forward",
    "attn_in": "core.block.Block.forward",
    "q": "core.attention.Attention.rotate",
    "k": "core.attention.Attention.rotate",
    "v": "core.attention.Attention.project_heads",
    "q_proj": "core.attention.Attention.project_heads",
    "k_proj": "core.attention.Attention.project_heads",
    "scores_raw": "interventions.stages.attention_stages",
    "scores_scaled": "interventions.stages.attention_stages",
    "bias": "core.positions.RelativeXL.score",
    "scores_masked": "core.masks.Mask.table",
    "weights": "core.kernels.weights",
    "head_out": "core.kernels.explicit",
    "attn_out": "core.attention.Attention.forward",
    "resid_pre": "core.block.Block.forward",
    "resid_mid": "core.block.Block.forward",
    "resid_post": "core.block.Block.forward",
    "mlp_pre": "core.block.FeedForward.forward",
    "mlp_hidden": "core.block.FeedForward.forward",
    "mlp_out": "core.block.FeedForward.forward",
    "gated": "core.block.GatedFeedForward.forward",
    "norm": "explore.norms.arithmetic",
    "units": "explore.feed_forward.TokenUnits",
    "attn_norm_scale": "interventions.stages.layer_norm_scale",
    "mlp_norm_scale": "interventions.stages.layer_norm_scale",
    "final_norm_scale": "interventions.stages.layer_norm_scale",
    "logits": "core.heads.NextToken.forward",
    "basic": "core.basic.attend",
    "sample": "generate.sampling.sample",
    "coding": "inference.entropy_coder.interval",
    "pre": "core.block.pre_norm",
    "post": "core.block.post_norm",
    "mask": "core.patterns.Causal",
    "strided": "core.patterns.Strided",
    "fixed": "core.patterns.Fixed",
    "local": "core.patterns.Local",
    "reach": "explore.reach.reach_with_memory",
    "memory": "core.cache.HiddenMemory.sources",
    "rotary": "core.positions.Rotary",
    "relative": "core.positions.RelativeXL",
    "sinusoidal": "core.positions.Sinusoidal",
    "learned": "core.positions.Learned",
    "alibi": "extensions.positions.ALiBi",
    "grid": "extensions.positions.Grid",
    "none": "core.positions.NoPosition",
    "loop": "core.kernels.loop",
    "fused": "core.kernels.fused",
    "cross": "core.block.DecoderBlock.forward",
    "classify": "core.heads.Classifier",
    "mean": "core.heads.mean_pool",
    "max": "extensions.heads.max_pool",
    "fill": "core.heads.MaskedToken.forward",
    "corrupt": "data.masking.TokenMasker.corrupt",
    "lens": "explore.lens.lens",
    "ig": "explore.attribution.integrated_gradients",
    "trace": "explore.trace.trace",
    "beams": "generate.beam.candidates",
    "pca": "explore.embedding_map.principal_axes",
}
SYMBOLS = tuple(dict.fromkeys(STAGES.values()))


def symbols() -> dict[str, Any]:
    return {"symbols": list(SYMBOLS), "stages": STAGES}


@cache
def source(symbol: str) -> dict[str, Any]:
    """The source of one symbol: file, line, text, and highlighted HTML."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    if symbol not in SYMBOLS:
        raise unknown("symbol", symbol)
    value = resolve(symbol)
    lines, line = inspect.getsourcelines(value)
    text = "".join(lines)
    file = inspect.getsourcefile(value)
    assert file is not None
    root = Path(clearformer.__file__).parent.parent
    return {
        "symbol": symbol,
        "file": Path(file).relative_to(root).as_posix(),
        "line": line,
        "text": text,
        "html": highlight(text, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)),
    }


def resolve(symbol: str) -> Any:
    """A function, class or method by its name below `clearformer`."""
    package, module, *names = symbol.split(".")
    value: Any = import_module(f"clearformer.{package}.{module}")
    for name in names:
        value = getattr(value, name)
    return inspect.unwrap(value)
