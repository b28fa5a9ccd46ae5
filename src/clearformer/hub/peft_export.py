"""Exports the adapter of a run for PEFT, which adds it to the exported model of its base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from clearformer.adapters.attach import adapted_layers, attach
from clearformer.builder import outline
from clearformer.config import Adapter, DoRA, ModelConfig, RunConfig, run_from_json
from clearformer.hub.compare import difference
from clearformer.hub.exporting import Exported
from clearformer.hub.family import Family
from clearformer.hub.peft_import import import_peft
from clearformer.hub.peft_names import (
    CONFIG,
    MAGNITUDE,
    PREFIX,
    WEIGHTS,
    PeftModule,
    peft_modules,
)
from clearformer.hub.tensor_names import their_names
from clearformer.hub.write_run import atomic_folder, require_unused, write_json
from clearformer.runs import finetune, load, state
from clearformer.runs.adapter_base import open_base, resolved

TASKS = {
    "generate": "CAUSAL_LM",
    "translate": "SEQ_2_SEQ_LM",
    "classify": "SEQ_CLS",
    "label": "TOKEN_CLS",
    "answer": "QUESTION_ANS",
}
TOLERANCE = 1e-3  # of logits, between the run and what was written


def to_peft(run: Path, out: Path) -> Exported:
    """Write a folder that `PeftModel.from_pretrained(model, folder)` opens."""
    require_unused(out)
    saved = load.best_checkpoint(run)
    if not load.has_adapter(saved):
        raise ValueError(f"{run} has no adapter: use --to huggingface, which writes the model")
    config = run_from_json(saved.json("config.json"))
    base = open_base(config, saved.folder)
    assert config.train.adapter is not None
    adapter = resolved(config.train.adapter, base.checkpoint)
    tensors = load.saved_weights(saved, config, state.ADAPTER)
    family, modules = peft_modules(config.model)
    theirs, ranks = _their_tensors(adapter, modules, config, tensors, base.model)
    head = _head(family, config.model, tensors)
    document = _document(adapter, modules, ranks, head, config.model)
    notes = [f"for the model in {base.checkpoint.folder}: export that one with --to huggingface"]
    if adapter.base != "float32":
        notes.append(f"it was trained beside {adapter.base} matrices; PEFT has others")
    with atomic_folder(out) as folder:
        write_json(folder / CONFIG, document)
        tensors_by_name = {f"{PREFIX}{name}": t.contiguous() for name, t in (theirs | head).items()}
        save_file(tensors_by_name, folder / WEIGHTS, metadata={"format": "pt"})
        distance = 0.0
        if adapter.base == "float32" and finetune.same_weights(base.config.model, config.model):
            distance = _compared(run, folder, base.checkpoint.folder, config.model)
    return Exported(out, f"{type(adapter).__name__} for PEFT", distance, 0, tuple(notes))


def _compared(run: Path, folder: Path, base: Path, config: ModelConfig) -> float:
    """The largest difference of logits between a run and what was written."""
    again = import_peft(folder, base).model()
    with torch.inference_mode():
        found = difference(load.open_any(run).model, again, config)
    if found > TOLERANCE:
        raise ValueError(f"the exported adapter gives other logits (by {found:.2g}): please report")
    return found


def _their_tensors(
    adapter: Adapter,
    modules: list[PeftModule],
    config: RunConfig,
    tensors: Mapping[str, Tensor],
    base: torch.nn.Module,
) -> tuple[dict[str, Tensor], dict[str, int]]:
    """A, B and magnitudes of their modules, and the rank of each."""
    # The layers themselves say what the rows of a matrix are made of.
    plain = replace(adapter, base="float32")
    model = attach(outline(config.model), plain, learning=[n for n in tensors if _is_head(n)])
    model = model.to_empty(device="cpu")
    weights = dict(base.named_parameters())
    layers = dict(adapted_layers(model))
    theirs: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    state.load_weights(state.ADAPTER.of(model), tensors, "the adapter")
    for module in modules:
        layer = layers.get(module.path)
        if layer is None:
            continue
        rows = slice(module.rows.start, module.rows.stop)
        parts = [
            (name, part)
            for name, part in layer.named_parts()
            if part.rows.start < module.rows.stop and module.rows.start < part.rows.stop
        ]
        if not parts:
            continue
        a = torch.cat([part.A.detach() for _, part in parts])
        b = torch.zeros(layer.out_features, len(a))
        lengths = weights[f"{module.path}.weight"].detach().norm(dim=1)
        place = 0
        for name, part in parts:
            own = slice(part.rows.start, part.rows.stop)
            b[own, place : place + len(part.A)] = part.B.detach()
            place += len(part.A)
            if isinstance(adapter, DoRA):
                lengths[own] = tensors[f"{module.path}.magnitude.{name}"]
        theirs[f"{module.name}.lora_A.weight"] = a
        theirs[f"{module.name}.lora_B.weight"] = b[rows][module.order]
        if isinstance(adapter, DoRA):
            theirs[f"{module.name}.{MAGNITUDE}"] = lengths[rows][module.order]
        ranks[module.name] = len(a)
    return theirs, ranks


def _head(family: Family, config: ModelConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A head that was trained too, under their names."""
    renames = family.renames(config)
    return {their_names(renames, n)[0][0]: t for n, t in tensors.items() if _is_head(n)}


def _is_head(name: str) -> bool:
    return name.startswith("head.")


def _document(
    adapter: Adapter,
    modules: list[PeftModule],
    ranks: Mapping[str, int],
    head: Mapping[str, Tensor],
    config: ModelConfig,
) -> dict[str, Any]:
    """adapter_config.json."""
    same = set(ranks.values()) == {adapter.rank}
    # For other tasks than writing PEFT expects the head among the tensors.
    known = {v: t for v, t in TASKS.items() if head or v in ("generate", "translate")}
    task = next((known[verb] for verb in config.verbs if verb in known), None)
    return {
        "peft_type": "LORA",
        "task_type": task,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha if same else adapter.scale * adapter.rank,
        "lora_dropout": adapter.dropout,
        "use_rslora": same and adapter.rank_stabilized,
        "use_dora": isinstance(adapter, DoRA),
        "bias": "none",
        "fan_in_fan_out": any(module.transposed for module in modules),
        "target_modules": sorted(ranks),  # whole names: the end of one may be that of another
        "rank_pattern": {} if same else dict(ranks),
        "alpha_pattern": {} if same else {n: adapter.scale * rank for n, rank in ranks.items()},
        "modules_to_save": sorted({name.rpartition(".")[0] for name in head}) or None,
    }
