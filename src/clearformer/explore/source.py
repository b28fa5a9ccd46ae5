"""The lines of clearformer that computed what is on the screen, coloured.

Only symbols of this list are shown: a page names a symbol, never a file.
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from clearformer.explore.errors import unknown

# The symbol behind each thing that a page shows.
STAGES = {
    "tokens": "text.tokenizer.Tokenizer",
    "embedding": "core.embedding.Embedding.forward",
    "order": "core.positions.Learned",
    "attn_in": "core.block.Block.forward",
    "q": "core.attention.Attention.rotate",
    "k": "core.attention.Attention.rotate",
    "v": "core.attention.Attention.project_heads",
    "q_proj": "core.attention.Attention.project_heads",
    "k_proj": "core.attention.Attention.project_heads",
    "scores_raw": "explore.stages.of_kernel",
    "scores_scaled": "explore.stages.of_kernel",
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
    "logits": "core.heads.NextToken.forward",
    "basic": "core.basic.attend",
    "sample": "generate.sampling.draw",
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
    "alibi": "core.positions.ALiBi",
    "loop": "core.kernels.loop",
    "fused": "core.kernels.fused",
    "cross": "core.block.DecoderBlock.forward",
    "classify": "core.heads.Classifier",
    "mean": "core.heads.mean_pool",
    "max": "core.heads.max_pool",
    "fill": "core.heads.MaskedToken.forward",
    "corrupt": "data.masking.Hider.hide",
    "lens": "explore.lens.lens",
    "ig": "explore.attribution.integrated_gradients",
    "trace": "explore.trace.trace",
}
SYMBOLS = tuple(dict.fromkeys(STAGES.values()))


def symbols() -> dict[str, Any]:
    return {"symbols": list(SYMBOLS), "stages": STAGES}


@cache
def source(symbol: str) -> dict[str, Any]:
    """The source of one symbol: where it stands, its text, and the text in colour."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    if symbol not in SYMBOLS:
        raise unknown("symbol", symbol)
    found = find(symbol)
    lines, line = inspect.getsourcelines(found)
    text = "".join(lines)
    file = inspect.getsourcefile(found)
    assert file is not None
    root = Path(import_module("clearformer").__file__ or "").parent.parent
    return {
        "symbol": symbol,
        "file": Path(file).relative_to(root).as_posix(),
        "line": line,
        "text": text,
        "html": highlight(text, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)),
    }


def find(symbol: str) -> Any:
    """A function, class or method by its name below `clearformer`."""
    room, file, *names = symbol.split(".")
    found: Any = import_module(f"clearformer.{room}.{file}")
    for name in names:
        found = getattr(found, name)
    return inspect.unwrap(found)
