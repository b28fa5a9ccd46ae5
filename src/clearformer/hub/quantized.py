"""A run with its weights in eight bits, which every verb opens as it is: a quarter of the size.

It is a run like any other, with config and tokenizer, but for use alone: nothing trains in whole
numbers. Where it came from is written down, so that `evaluate` can tell what it costs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from clearformer.config import Seq2SeqConfig, to_json
from clearformer.hub.compare import difference
from clearformer.hub.exporting import Exported, require_free
from clearformer.hub.write_run import whole_or_nothing, write_json
from clearformer.inference.int8 import int8_tensors, quantize
from clearformer.runs import checkpoint, state
from clearformer.runs.load import INT8, open_any, require_floats

FROM = "quantized_from"  # in the manifest: the folder of the run in float32


def to_int8(run: Path, out: Path) -> Exported:
    """Quantize the model of a run, write it, and open it again: the same logits, to the bit."""
    require_free(out)
    notes: list[str] = []
    model, config, _, found = open_any(run, say=notes.append)
    require_floats(found)
    if isinstance(config.model, Seq2SeqConfig):
        raise ValueError(
            f"{run} is a translator, and int8 is for models of one stack so far: use it as it is"
        )
    before = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    quantize(model)
    tensors = int8_tensors(model)
    after = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    # What is used is the average, if there was one; it is what was quantized.
    config = replace(config, train=replace(config.train, ema=None))
    facts = {
        name: value for name, value in found.manifest.items() if name not in ("format", "step")
    }
    facts |= {FROM: str(run.absolute())}
    with whole_or_nothing(out) as folder:
        checkpoint.write(
            folder / "checkpoints",
            found.step,
            {INT8: tensors},
            {
                "config.json": to_json(config),
                "tokenizer.json": found.json("tokenizer.json"),
                "state.json": {**state.State(nn.Identity(), (), None).numbers(), "best": None},
            },
            facts,
        )
        write_json(folder / "config.json", to_json(config))
        write_json(folder / "tokenizer.json", found.json("tokenizer.json"))
        again = open_any(folder)[0]
        with torch.inference_mode():
            apart = difference(model, again, config.model)
        if apart != 0.0:
            raise ValueError(
                f"what was written to {out} gives other logits (by {apart:.2g}): nothing is kept; "
                f"please report this"
            )
    note = f"{before / 2**20:.1f} MiB became {after / 2**20:.1f} MiB"
    return Exported(out, "int8", apart, 0, (note, *notes))
