"""Exports a model as a Hugging Face folder, or as one safetensors file.

What was written is imported again and compared (logits, then fifty greedy tokens) before it gets
its final name.
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

from clearformer.config import AnyModelConfig, GenerationDefaults, ModelConfig, to_json
from clearformer.hub.chat_templates import write_chat_template
from clearformer.hub.compare import Model, compare
from clearformer.hub.export_family import choose_family
from clearformer.hub.family import Family
from clearformer.hub.hf_config import HFConfig
from clearformer.hub.importing import METADATA_KEY
from clearformer.hub.safetensors_files import WEIGHTS
from clearformer.hub.tensor_names import their_names
from clearformer.hub.tokenizer_files import write_tokenizer
from clearformer.hub.write_run import atomic_file, atomic_folder, require_unused, write_json
from clearformer.runs import state
from clearformer.text import Tokenizer


@dataclass(frozen=True)
class Exported:
    """What was written, and how it compares with the original."""

    path: Path
    form: str  # an architecture of transformers, or safetensors
    difference: float  # largest difference of logits
    tokens: int  # equal greedy tokens; 0 if the model does not generate
    notes: tuple[str, ...] = ()


def to_huggingface(
    model: Model,
    config: AnyModelConfig,
    generation: GenerationDefaults,
    tokenizer: Tokenizer,
    out: Path,
) -> Exported:
    """Write a folder that `AutoModel` and `AutoTokenizer` open."""
    require_unused(out)
    family, config, tensors, settings = choose_family(config, state.weights(model))
    settings |= family.write_generation(config, generation)
    renames = family.renames(config)
    theirs: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        names, layout = their_names(renames, name)
        parts = layout.split(tensor.float().cpu(), config)
        theirs |= {each: part.contiguous() for each, part in zip(names, parts, strict=True)}
    with atomic_folder(out) as folder:
        template = generation.chat_template
        ids = write_tokenizer(tokenizer, folder, config.length, generation.target_ids, template)
        write_chat_template(template, folder)
        write_json(folder / "config.json", {**ids, **settings, "dtype": "float32"})
        generation_config = family.generation_config(config, generation)
        if generation_config is not None:
            write_json(folder / "generation_config.json", generation_config)
        save_file(theirs, folder / WEIGHTS, metadata={"format": "pt"})
        _apply_umask(folder / WEIGHTS)
        difference, tokens = compare(model, folder, config, generation)
    notes = _notes(config, family, settings)
    return Exported(out, settings["architectures"][0], difference, tokens, notes)


def to_safetensors(
    model: Model,
    config: AnyModelConfig,
    generation: GenerationDefaults,
    tokenizer: Tokenizer,
    out: Path,
) -> Exported:
    """Write one file with our names; its metadata has config, generation defaults and tokenizer."""
    if out.suffix != ".safetensors":
        raise ValueError(f"{out} must end in .safetensors")
    require_unused(out)
    metadata = {
        "model": to_json(config),
        "generation": to_json(generation),
        "tokenizer": tokenizer.to_json(),
    }
    tensors = {name: t.float().cpu().contiguous() for name, t in state.weights(model).items()}
    with atomic_file(out) as temporary:
        save_file(tensors, temporary, metadata={METADATA_KEY: json.dumps(metadata), "format": "pt"})
        _apply_umask(temporary)
        difference, tokens = compare(model, temporary, config, generation)
    return Exported(out, "safetensors", difference, tokens)


def _notes(config: ModelConfig, family: Family, settings: Mapping[str, Any]) -> tuple[str, ...]:
    notes = []
    if family.read_config(HFConfig(settings, "config.json"), ()).dropout != config.dropout:
        notes.append("its dropout cannot be expressed there; outputs do not depend on it")
    if settings["model_type"] == "qwen2":
        notes.append(
            "AutoTokenizer gives every Qwen2 the tokenizer of Qwen2: open this one with "
            "PreTrainedTokenizerFast.from_pretrained"
        )
    return tuple(notes)


def _apply_umask(path: Path) -> None:
    """Apply the umask: safetensors makes its files private."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)
