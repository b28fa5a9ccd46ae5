"""Imports an adapter of PEFT: LoRA or DoRA, for a run that holds the model.

The model that an adapter names is never opened: the user gives it. What our adapters cannot
express is refused by name. An adapter whose modules have different ranks is padded with zeros to
the largest, and one that leaves modules out gets zeros there; the products are the same.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearformer import __version__, limits
from clearformer.builder import outline
from clearformer.config import Adapter, DoRA, LoRA, Origin, RunConfig, to_json
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.hub.convert import first_few, to_float32
from clearformer.hub.peft_names import (
    CONFIG,
    MAGNITUDE,
    PICKLED,
    PREFIX,
    WEIGHTS,
    PeftModule,
    peft_modules,
)
from clearformer.hub.safetensors_files import SafetensorsFile, inside, printable
from clearformer.hub.tensor_names import their_names
from clearformer.hub.write_run import atomic_folder, require_unused
from clearformer.runs import checkpoint, finetune, load, state
from clearformer.runs.adapter_base import put_into
from clearformer.runs.load import OpenedAny
from clearformer.safe_json import read_json
from clearformer.text import Tokenizer
from clearformer.text import sha256 as tokenizer_identity

# Settings that say nothing about what an adapter computes once it is trained.
IGNORED = {
    "auto_mapping", "base_model_name_or_path", "exclude_modules", "fan_in_fan_out",
    "inference_mode", "layers_pattern", "layers_to_transform", "megatron_core", "modules_to_save",
    "peft_version", "qalora_group_size", "revision", "runtime_config", "target_modules",
    "task_type",
}  # fmt: skip
READ = {
    "peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "rank_pattern",
    "alpha_pattern", "bias", "init_lora_weights",
}  # fmt: skip
INITIAL_WEIGHTS = (None, True, False, "gaussian", "orthogonal")  # others change the model too
PLAIN_NAME = re.compile(r"[\w.]{1,200}")


@dataclass(frozen=True)
class PeftConfig:
    """The settings of an adapter that we understand."""

    rank: int
    alpha: float
    dropout: float
    rslora: bool
    kind: type[Adapter]
    ranks: dict[str, Any]
    alphas: dict[str, Any]

    def rank_of(self, module: str) -> int:
        return int(_by_name(self.ranks, module, self.rank))

    def scale_of(self, module: str) -> float:
        rank, alpha = self.rank_of(module), float(_by_name(self.alphas, module, self.alpha))
        return alpha / (math.sqrt(rank) if self.rslora else rank)


@dataclass(frozen=True)
class ImportedAdapter:
    """An adapter of PEFT, read and checked, with the model that it is for."""

    source: str
    base: OpenedAny
    config: RunConfig
    tensors: dict[str, Tensor]  # under our names
    notes: tuple[str, ...]

    @property
    def tokenizer(self) -> Tokenizer:
        return self.base.tokenizer

    def model(self) -> Transformer | Seq2Seq:
        """The model in evaluation mode, with the adapter merged."""
        model = outline(self.config.model)
        put_into(model, self.config, self.tensors, self.base, self.source)
        return model.eval()

    def write(self, out: Path) -> Path:
        """Write a run at step 0 that holds the adapter alone."""
        require_unused(out)
        facts = {
            "clearformer": __version__,
            "torch": torch.__version__,
            "tokenizer": tokenizer_identity(self.tokenizer),
            "tied": state.tied(outline(self.config.model)),
            "imported": {"from": Path(self.source).name, "notes": list(self.notes)},
        }
        documents = {
            "config.json": to_json(self.config),
            "tokenizer.json": self.tokenizer.to_json(),
            "state.json": state.State(torch.nn.Identity(), (), None).numbers(),
        }
        with atomic_folder(out) as folder:
            tensors = {state.ADAPTER.file: self.tensors}
            checkpoint.write_run(folder, 0, tensors, documents, facts)
        return out


def import_peft(path: Path, base: Path) -> ImportedAdapter:
    """Read the adapter in a folder of PEFT for the model of a run."""
    settings = read_config(path / CONFIG)
    opened = load.open_any(base, dequantize=True)
    if not os.path.lexists(path / WEIGHTS):
        pickled = f"{PICKLED} is a pickle, which can carry code: ask for safetensors"
        raise ValueError(
            f"{path}: {pickled if os.path.lexists(path / PICKLED) else f'it has no {WEIGHTS}'}"
        )
    file = SafetensorsFile(inside(path, WEIGHTS))
    try:
        tensors, adapter = _converted(settings, opened, file)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    origin = Origin(folder=os.path.abspath(base), sha256=finetune.identity(opened.checkpoint))
    train = replace(
        opened.config.train, adapter=adapter, ema_decay=None, freeze=None, embedding_std=None
    )
    config = replace(opened.config, origin=origin, train=train)
    imported = ImportedAdapter(str(path), opened, config, tensors, ())
    imported.model()  # refuses NaN, and a rank that is too large
    return imported


def read_config(path: Path) -> PeftConfig:
    """Read and check adapter_config.json."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not a JSON object")

    def refuse(name: str, reason: str) -> ValueError:
        return ValueError(f"{path}: {name:.60} is {data.get(name)!r:.60}, {reason}")

    if data.get("peft_type") != "LORA":
        raise refuse("peft_type", "but clearformer reads LORA (LoRA and DoRA)")
    for name, value in data.items():
        if name not in READ | IGNORED and value not in (None, False, [], {}, ""):
            raise refuse(str(name), "which clearformer does not support")
    if data.get("bias", "none") != "none":
        raise refuse("bias", "but clearformer's adapters leave biases as they are: none")
    if data.get("init_lora_weights") not in INITIAL_WEIGHTS:
        raise refuse("init_lora_weights", "which changes the weights of the model too")
    rank, alpha = data.get("r", 8), data.get("lora_alpha", 8)
    dropout = data.get("lora_dropout") or 0.0
    if type(rank) is not int or not 1 <= rank <= limits.MAX_WIDTH:
        raise refuse("r", f"but it must be a whole number from 1 to {limits.MAX_WIDTH:,}")
    if not _is_number(alpha) or alpha <= 0:
        raise refuse("lora_alpha", "but it must be a number above 0")
    if not _is_number(dropout) or not 0 <= dropout < 1:
        raise refuse("lora_dropout", "but it must be a number from 0 to 1")
    patterns = {}
    for name, most in (("rank_pattern", limits.MAX_WIDTH), ("alpha_pattern", 1e9)):
        pattern = data.get(name) or {}
        if not isinstance(pattern, dict) or not all(map(PLAIN_NAME.fullmatch, pattern)):
            raise refuse(name, "but clearformer reads an object of plain names of modules")
        if not all(_is_number(value) and 0 < value <= most for value in pattern.values()):
            raise refuse(name, "but its values must be numbers above 0")
        patterns[name] = pattern
    return PeftConfig(
        rank,
        float(alpha),
        float(dropout),
        data.get("use_rslora") is True,
        DoRA if data.get("use_dora") is True else LoRA,
        patterns["rank_pattern"],
        patterns["alpha_pattern"],
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _by_name(pattern: Mapping[str, Any], module: str, default: float) -> float:
    """The first entry whose name is the end of a module's."""
    return next((v for n, v in pattern.items() if f".{module}".endswith(f".{n}")), default)


def _converted(
    settings: PeftConfig, base: OpenedAny, file: SafetensorsFile
) -> tuple[dict[str, Tensor], Adapter]:
    """The tensors of an adapter under our names, and its settings."""
    config = base.config.model
    family, modules = peft_modules(config)
    short = {name.removeprefix(PREFIX): name for name in file.names()}
    present = {full: short[name] for full, name in family.canonical(list(short)).items()}
    found: dict[PeftModule, dict[str, Tensor]] = {}
    for module in modules:
        own = _own_tensors(module, settings, present, file)
        if own is not None:
            found[module] = own
    tensors = _head_tensors(base, present, file, family.renames(config))
    if present:
        raise ValueError(
            f"it has {first_few(list(present.values()))}, for which the model in "
            f"{base.checkpoint.folder} has no place"
        )
    if not found:
        raise ValueError("it has no lora_A and lora_B of any matrix of the model")
    adapter = _adapter(settings, found)
    wanted = adapter.targets.split(",")
    weights = dict(base.model.named_parameters())
    for module in (each for each in modules if each.part in wanted):
        own = _factors(module, settings, adapter, found.get(module, {}))
        if isinstance(adapter, DoRA):
            rows = weights[f"{module.path}.weight"][module.rows.start : module.rows.stop]
            own[module.magnitude] = _magnitude(module, found.get(module, {}), rows.detach())
        tensors |= own
    return tensors, adapter


def _own_tensors(
    module: PeftModule, settings: PeftConfig, present: dict[str, str], file: SafetensorsFile
) -> dict[str, Tensor] | None:
    """A, B and the magnitude of a module, taken out of `present`; None if it has none."""
    names = {"A": f"{module.name}.lora_A.weight", "B": f"{module.name}.lora_B.weight"}
    length = f"{module.name}.{MAGNITUDE}"
    if settings.kind is DoRA:
        names["magnitude"] = length if length in present else f"{length}.weight"
    if not set(names.values()) & set(present):
        return None
    rank = settings.rank_of(module.name)
    shapes = {
        "A": (rank, module.inputs),
        "B": (len(module.rows), rank),
        "magnitude": (len(module.rows),),
    }
    own = {}
    for key, name in names.items():
        if name not in present:
            raise ValueError(f"it lacks the tensor {printable(name)}")
        place = present.pop(name)
        if file.shape(place) != shapes[key]:
            raise ValueError(
                f"{printable(place)} has shape {file.shape(place)}, but the model and a rank of "
                f"{rank} make it {shapes[key]}"
            )
        own[key] = to_float32(place, file.tensor(place)).clone()
    return own


def _head_tensors(
    base: OpenedAny, present: dict[str, str], file: SafetensorsFile, renames: Any
) -> dict[str, Tensor]:
    """A head that was saved whole (`modules_to_save`), taken out of `present`."""
    tensors = {}
    for name, parameter in base.model.named_parameters():
        if not name.startswith("head."):
            continue
        theirs, _ = their_names(renames, name)
        if len(theirs) == 1 and theirs[0] in present:
            place = present.pop(theirs[0])
            if file.shape(place) != tuple(parameter.shape):
                raise ValueError(
                    f"{printable(place)} has shape {file.shape(place)}, but the model's is "
                    f"{tuple(parameter.shape)}"
                )
            tensors[name] = to_float32(place, file.tensor(place)).clone()
    return tensors


def _adapter(settings: PeftConfig, found: Mapping[PeftModule, Mapping[str, Tensor]]) -> Adapter:
    """One rank and scale for all modules."""
    ranks = {settings.rank_of(module.name) for module in found}
    scales = {settings.scale_of(module.name) for module in found}
    rank, alpha, rslora = max(ranks), settings.alpha, settings.rslora
    if len(scales) > 1 or ranks != {settings.rank} or settings.alphas:
        alpha, rslora = max(scales) * rank, False
    return settings.kind(
        rank=rank,
        alpha=alpha,
        targets=",".join(dict.fromkeys(module.part for module in found)),
        dropout=settings.dropout,
        rank_stabilized=rslora,
    )


def _factors(
    module: PeftModule, settings: PeftConfig, adapter: Adapter, own: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """A (K, I) and B (rows, K), in our order of rows, with zeros up to the adapter's rank."""
    a = torch.zeros(adapter.rank, module.inputs)
    b = torch.zeros(len(module.rows), adapter.rank)
    if own:
        rank = len(own["A"])
        ratio = settings.scale_of(module.name) / adapter.scale
        a[:rank] = own["A"]
        b[module.order, :rank] = own["B"] if ratio == 1 else own["B"] * ratio
    return {f"{module.parameter}.A": a, f"{module.parameter}.B": b}


def _magnitude(module: PeftModule, own: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """The lengths of a module's rows, in our order; of the model's if it is not adapted."""
    if not own:
        return rows.norm(dim=1)
    lengths = torch.empty(len(module.rows))
    lengths[module.order] = own["magnitude"]
    return lengths
