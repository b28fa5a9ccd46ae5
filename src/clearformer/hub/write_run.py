"""Writes an imported model as a run at step 0, atomically."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from clearformer import __version__
from clearformer.builder import outline
from clearformer.config import AnyModelConfig, GenerationDefaults, RunConfig, to_json
from clearformer.families.recipes import recipe
from clearformer.hub.importing import Imported
from clearformer.runs import checkpoint, state
from clearformer.text import Tokenizer
from clearformer.text import sha256 as tokenizer_identity


def default_run_config(
    model: AnyModelConfig, generation: GenerationDefaults, tokenizer: Tokenizer | None
) -> RunConfig:
    """The recipe of a model's family, as a starting point for training."""
    data, train = recipe(model)
    if tokenizer is not None:
        data = replace(data, tokenizer=tokenizer.kind, vocabulary=None)  # type: ignore[arg-type]
    return RunConfig(model=model, data=data, train=train, generation=generation)


def write_run(imported: Imported, out: Path, config: RunConfig | None = None) -> Path:
    """Write weights, tokenizer and config, by default with the recipe of the model's family.

    There is no optimizer state.
    """
    if imported.tokenizer is None:
        raise ValueError(
            f"{imported.source} has no tokenizer, and a model without one cannot be used: "
            f"give --tokenizer a folder that has it, or bytes"
        )
    require_unused(out)
    config = config or default_run_config(imported.config, imported.generation, imported.tokenizer)
    facts = {
        "clearformer": __version__,
        "torch": torch.__version__,
        "tokenizer": tokenizer_identity(imported.tokenizer),
        "tied": state.tied(outline(imported.config)),
        "imported": {"from": Path(imported.source).name, "notes": list(imported.notes)},
    }
    documents = {
        "config.json": to_json(config),
        "tokenizer.json": imported.tokenizer.to_json(),
        "state.json": state.State(torch.nn.Identity(), (), None).numbers(),
    }
    with atomic_folder(out) as folder:
        checkpoint.write_run(folder, 0, {"model.safetensors": imported.tensors}, documents, facts)
    return out


def require_unused(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} already exists: choose another folder")


@contextmanager
def atomic_folder(out: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to `out` at the end, or removed after an error."""
    out = out.absolute()
    temporary = out.with_name(f".{out.name}-{os.getpid()}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        temporary.rename(out)  # replaces an empty folder
    except OSError as problem:
        raise ValueError(f"{out} cannot be written: {problem.strerror or problem}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def atomic_file(out: Path) -> Iterator[Path]:
    """A temporary file that is renamed to `out` at the end, or removed after an error."""
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.stem}-{os.getpid()}{out.suffix}")
    try:
        yield temporary
        temporary.rename(out)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    path.write_text(checkpoint.as_text(value), encoding="utf-8")
