"""G15: export to Hugging Face transformers and import again, with the same weights and logits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearformer.builder import build
from clearformer.config import GenerationDefaults, NextToken
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
TOLERANCE = 1e-4


def round_trip(workdir: Path) -> str:
    """GPT-2 and Llama, tied and untied, and BERT."""
    try:
        import transformers
    except ImportError:
        raise Skipped("transformers is not installed") from None
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    worst, configs = 0.0, _configs()
    ids = torch.arange(12)[None] * 5 % 256
    for name, config in configs.items():
        ours = build(config, seed=3).eval()
        assert isinstance(ours, Transformer)
        form = to_huggingface(ours, config, GenerationDefaults(), Bytes(), workdir / name).form
        theirs = getattr(transformers, form).from_pretrained(workdir / name).eval()
        with torch.inference_mode():
            difference = (_scores(theirs(ids)) - _scores(ours(ids))).abs().max().item()
        worst = max(worst, difference)
        require(difference <= TOLERANCE, f"{name}: logits differ by {difference:.1e}")
        theirs.save_pretrained(workdir / f"{name}-theirs")
        back = importing.import_checkpoint(workdir / f"{name}-theirs", tokenizer="bytes").model()
        for key, value in state.weights(ours).items():
            require(value.equal(state.weights(back)[key]), f"{name}: {key} changed on the way")
    library = f"transformers {transformers.__version__}"
    return f"{len(configs)} models through {library}: bitwise, {worst:.0e}"


def _configs() -> dict[str, Any]:
    gpt2 = replace(preset("gpt2"), **SIZES)
    modern = replace(preset("modern-tiny"), **SIZES, key_heads=2)
    configs = {
        f"{name}-{'tied' if tied else 'untied'}": replace(model, head=NextToken(tied=tied))
        for name, model in (("gpt2", gpt2), ("modern", modern))
        for tied in (True, False)
    }
    return {**configs, "bert": replace(preset("bert"), **SIZES)}


def _scores(output: Any) -> Tensor:
    """The logits of the tokens, without further outputs."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, tuple):
        return output[0]
    return output.get("logits", output.get("prediction_logits"))
