"""G15: ours to safetensors, opened by the reference implementation, and back to ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearformer.build import build
from clearformer.config import NextToken
from clearformer.core.model import Transformer
from clearformer.families import preset
from clearformer.hub import importing
from clearformer.hub.exporting import to_huggingface
from clearformer.runs import state
from clearformer.selftest.processes import Skipped, require
from clearformer.text import Bytes

SIZES: dict[str, Any] = {
    "vocabulary": 256, "length": 16, "layers": 2, "width": 32, "heads": 4, "hidden": 64,
}  # fmt: skip
NEAR = 1e-4


def round_trip(place: Path) -> str:
    """Every family that the library knows, tied and untied: the same bits, and its logits ours."""
    try:
        import transformers
    except ImportError:
        raise Skipped("transformers is not installed") from None
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    worst, count = 0.0, 0
    ids = torch.arange(12)[None] * 5 % 256
    for name, config in _configs().items():
        ours = build(config, seed=3).eval()
        assert isinstance(ours, Transformer)
        form = to_huggingface(ours, config, Bytes(), place / name).form
        theirs = getattr(transformers, form).from_pretrained(place / name).eval()
        with torch.inference_mode():
            difference = (_scores(theirs(ids)) - _scores(ours(ids))).abs().max().item()
        worst = max(worst, difference)
        require(difference <= NEAR, f"{name}: logits differ by {difference:.1e}")
        theirs.save_pretrained(place / f"{name}-theirs")
        back = importing.import_checkpoint(place / f"{name}-theirs", tokenizer="bytes").model()
        for key, value in state.weights(ours).items():
            require(value.equal(state.weights(back)[key]), f"{name}: {key} came back otherwise")
        count += 1
    return f"{count} models through transformers {transformers.__version__}: bitwise, {worst:.0e}"


def _configs() -> dict[str, Any]:
    gpt2 = replace(preset("gpt2"), **SIZES)
    modern = replace(preset("modern-tiny"), **SIZES, key_heads=2)
    models = {"gpt2": gpt2, "modern": modern}
    found = {}
    for name, model in models.items():
        for tied in (True, False):
            called = f"{name}-{'tied' if tied else 'untied'}"
            found[called] = replace(model, head=NextToken(tied=tied))
    return {**found, "bert": replace(preset("bert"), **SIZES)}


def _scores(output: Any) -> Tensor:
    """Of the tokens, and not of what a model may give beside them."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, tuple):
        return output[0]
    return output.get("logits", output.get("prediction_logits"))
