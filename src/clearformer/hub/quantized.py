"""Exports a run with int8 weights: a quarter of the size, for inference only.

It is a run like any other, with config and tokenizer, but cannot be trained. The manifest names the
original, so that `evaluate` can report the loss in quality.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from clearformer.config import Seq2SeqConfig, to_json
from clearformer.hub.compare import difference
from clearformer.hub.exporting import Exported
from clearformer.hub.write_run import atomic_folder, require_unused
from clearformer.inference.int8 import int8_tensors, quantize
from clearformer.runs import checkpoint, state
from clearformer.runs.load import INT8, SOURCE_RUN, open_any, require_floats


def to_int8(run: Path, out: Path) -> Exported:
    """Quantize the model of a run, write it, and check that it opens with bitwise equal logits."""
    require_unused(out)
    notes: list[str] = []
    model, config, _, saved = open_any(run, say=notes.append)
    require_floats(saved)
    if isinstance(config.model, Seq2SeqConfig):
        raise ValueError(
            f"{run} is a translator, but int8 supports models with one stack only: use it as it is"
        )
    before = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    quantize(model)
    tensors = int8_tensors(model)
    after = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    # The averaged weights were quantized, if there were any.
    config = replace(config, train=replace(config.train, ema_decay=None, adapter=None))
    facts = {**saved.facts, SOURCE_RUN: str(run.absolute())}
    documents = {
        "config.json": to_json(config),
        "tokenizer.json": saved.json("tokenizer.json"),
        "state.json": state.State(nn.Identity(), (), None).numbers(),
    }
    with atomic_folder(out) as folder:
        checkpoint.write_run(folder, saved.step, {INT8: tensors}, documents, facts)
        copy = open_any(folder)[0]
        with torch.inference_mode():
            distance = difference(model, copy, config.model)
        if distance != 0.0:
            raise ValueError(
                f"the exported model in {out} gives other logits (by {distance:.2g}): the export "
                f"was removed; please report this"
            )
    note = f"{before / 2**20:.1f} MiB became {after / 2**20:.1f} MiB"
    return Exported(out, "int8", distance, 0, (note, *notes))
