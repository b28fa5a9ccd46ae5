"""A model of ours as others open it: a Hugging Face folder, or one safetensors file.

What was written is opened again by our own importer and compared, logits first and then fifty
greedy tokens, before it gets its name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from clearformer.config import AnyModelConfig, ModelConfig, Seq2SeqConfig, to_json
from clearformer.hub import tensor_names
from clearformer.hub.compare import Model, compare
from clearformer.hub.export_family import fitting
from clearformer.hub.family import Family
from clearformer.hub.hf_config import Settings
from clearformer.hub.importing import OWN
from clearformer.hub.safetensors_files import WEIGHTS
from clearformer.hub.tokenizer_files import write_tokenizer
from clearformer.hub.write_run import whole_or_nothing, write_json
from clearformer.runs import state
from clearformer.text import Tokenizer


@dataclass(frozen=True)
class Exported:
    """What was written, and how it was found to agree."""

    path: Path
    form: str  # an architecture of theirs, or safetensors
    difference: float  # the largest between logits before and after
    tokens: int  # greedy tokens that came out alike; 0 of a model that generates none
    notes: tuple[str, ...] = ()


def to_huggingface(
    model: Model, config: AnyModelConfig, tokenizer: Tokenizer, out: Path
) -> Exported:
    """A folder that `AutoModel` and `AutoTokenizer` open."""
    require_free(out)
    family, config, tensors, settings = fitting(config, state.weights(model))
    rows = family.rows(config)
    theirs: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        found, layout = tensor_names.find(rows, name)
        cut = layout.cut(tensor.float().cpu(), config)
        theirs |= {each: part.contiguous() for each, part in zip(found, cut, strict=True)}
    with whole_or_nothing(out) as folder:
        marks = config.marks if isinstance(config, Seq2SeqConfig) else None
        ids = write_tokenizer(tokenizer, folder, config.length, marks)
        write_json(folder / "config.json", {**ids, **settings, "dtype": "float32"})
        generation = family.generation(config)
        if generation is not None:
            write_json(folder / "generation_config.json", generation)
        save_file(theirs, folder / WEIGHTS, metadata={"format": "pt"})
        _open_mode(folder / WEIGHTS)
        difference, tokens = compare(model, folder, config)
    return Exported(
        out, settings["architectures"][0], difference, tokens, _unsaid(config, family, settings)
    )


def to_safetensors(
    model: Model, config: AnyModelConfig, tokenizer: Tokenizer, out: Path
) -> Exported:
    """One file under our own names, with config and tokenizer in it."""
    if out.suffix != ".safetensors":
        raise ValueError(f"{out} must end in .safetensors")
    require_free(out)
    about = {"model": to_json(config), "tokenizer": tokenizer.to_json()}
    tensors = {name: t.float().cpu().contiguous() for name, t in state.weights(model).items()}
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.stem}-{os.getpid()}.safetensors")
    try:
        save_file(tensors, temporary, metadata={OWN: json.dumps(about), "format": "pt"})
        _open_mode(temporary)
        difference, tokens = compare(model, temporary, config)
        temporary.rename(out)
    finally:
        temporary.unlink(missing_ok=True)
    return Exported(out, "safetensors", difference, tokens)


def _unsaid(config: ModelConfig, family: Family, settings: Mapping[str, Any]) -> tuple[str, ...]:
    notes = []
    if family.read(Settings(settings, "config.json"), ()).dropout != config.dropout:
        notes.append("its dropout in training cannot be told there; outputs do not depend on it")
    if settings["model_type"] == "qwen2":
        notes.append(
            "AutoTokenizer gives every Qwen2 the tokenizer of Qwen2: open this one with "
            "PreTrainedTokenizerFast.from_pretrained"
        )
    return tuple(notes)


def require_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is there already: choose another --out")


def _open_mode(path: Path) -> None:
    """The mode that the umask asks for: safetensors makes its files private."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)
