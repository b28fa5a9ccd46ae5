"""Imports a GGUF file: weights, config, tokenizer and chat template in one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from clearformer.config import GenerationDefaults, ModelConfig
from clearformer.hub import gguf_tokenizer
from clearformer.hub.convert import convert, plan_conversion
from clearformer.hub.gguf_architectures import Architecture, architecture_of
from clearformer.hub.gguf_file import GGUFFile
from clearformer.hub.hf_config import HFConfig
from clearformer.hub.importing import Imported, model_name, require_size
from clearformer.text import Tokenizer


def import_gguf(path: Path, tokenizer: Tokenizer | None = None) -> Imported:
    """Read a GGUF file, with its own tokenizer unless another one is given.

    Names, shapes and the vocabulary are checked before any data is read.
    """
    file = GGUFFile(path)
    with _naming(path):
        architecture, config = _read_config(file)
        family = architecture.tensors
        plan, unused = plan_conversion(family, config, file, family.canonical(list(file.names())))
        template, notes = None, tuple[str, ...]()
        if tokenizer is None:
            tokenizer = gguf_tokenizer.read_tokenizer(file.metadata)
            template, notes = gguf_tokenizer.read_template(file.metadata)
        ends = gguf_tokenizer.read_end_ids(file.metadata, config.vocabulary)
        generation = GenerationDefaults(end_ids=ends, chat_template=template)
        require_size(tokenizer, config, generation, str(path))
        tensors, changes = convert(plan, file)
    if file.kinds():
        changes.append(f"quantized weights ({', '.join(file.kinds())}) are now float32")
    return Imported(str(path), config, generation, tokenizer, tensors, (*unused, *changes, *notes))


def read_gguf_config(path: Path) -> ModelConfig:
    """The config of a GGUF file; no weights are read."""
    with _naming(path):
        return _read_config(GGUFFile(path))[1]


def _read_config(file: GGUFFile) -> tuple[Architecture, ModelConfig]:
    architecture = architecture_of(file.metadata)
    settings = HFConfig(architecture.read_settings(file.metadata, file), str(file.path))
    config = architecture.family.read_config(settings, set(file.names()))
    name = model_name(architecture.family, file.path.with_suffix(""))
    return architecture, replace(config, name=name)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the file to an error that does not name it."""
    try:
        yield
    except ValueError as problem:
        sentence = str(problem)
        raise ValueError(sentence if str(path) in sentence else f"{path}: {sentence}") from None
