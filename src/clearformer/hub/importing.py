"""Imports a checkpoint of another tool as a config, a tokenizer and tensors.

Settings, names, shapes and the size of the vocabulary are checked before any data is read. Nothing
is written here, and no code in a checkpoint is run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from torch import Tensor

from clearformer.builder import outline
from clearformer.config import (
    AnyModelConfig,
    GenerationDefaults,
    ModelConfig,
    Rotary,
    model_and_generation_from_json,
    model_from_json,
)
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.hub.chat_templates import read_chat_template
from clearformer.hub.convert import convert, first_few, plan_conversion, to_float32
from clearformer.hub.family import Family
from clearformer.hub.hf_config import HFConfig
from clearformer.hub.pickle_files import PickleFile
from clearformer.hub.registry import family_of, guess_model_type
from clearformer.hub.safetensors_files import (
    INDEX,
    PICKLED,
    WEIGHTS,
    SafetensorsFile,
    Weights,
    inside,
    open_weights,
)
from clearformer.hub.tokenizer_files import read_tokenizer
from clearformer.runs import state
from clearformer.safe_json import read_json
from clearformer.text import Bytes, Tokenizer
from clearformer.text import from_json as tokenizer_from_json
from clearformer.text.chat_template import ChatTemplate


@dataclass(frozen=True)
class Imported:
    """A checkpoint, read and checked."""

    source: str
    config: AnyModelConfig
    generation: GenerationDefaults
    tokenizer: Tokenizer | None
    tensors: dict[str, Tensor]  # under our names, tied ones once
    notes: tuple[str, ...]  # what the user should know

    def model(self) -> Transformer | Seq2Seq:
        """The model in evaluation mode; it uses these tensors without a copy."""
        model = outline(self.config)
        state.adopt_weights(model, self.tensors, self.source)
        return model.eval()


GGUF = ".gguf"
METADATA_KEY = "clearformer"  # in the metadata of our own files: their config and tokenizer


@dataclass(frozen=True)
class _Opened:
    """A checkpoint with its settings, before its data is read."""

    folder: Path
    weights: Weights
    family: Family
    settings: HFConfig
    names: dict[str, str]  # canonical tensor names, and those in the file
    config: ModelConfig
    generation: GenerationDefaults
    notes: tuple[str, ...]


def import_checkpoint(
    path: Path,
    *,
    tokenizer: str | None = None,
    allow_bin: bool = False,
    pairs: Literal["halves", "neighbours"] = "halves",
) -> Imported:
    """Read a Hugging Face folder, a .gguf file, or a file of weights beside its config.json.

    `tokenizer` is another folder with the tokenizer, or "bytes". `pairs` is the layout of rotary
    components, which config.json does not specify.
    """
    if path.suffix == GGUF:
        from clearformer.hub.gguf_import import import_gguf

        return import_gguf(path, None if tokenizer is None else _named_tokenizer(tokenizer))
    weights = _open_weights(path, allow_bin)
    if isinstance(weights, SafetensorsFile) and METADATA_KEY in weights.metadata:
        return _import_own(weights, str(path))
    with _naming(path):
        opened = _open(path, weights)
        family, settings, config = opened.family, opened.settings, opened.config
        if isinstance(config.position, Rotary):
            config = replace(config, position=replace(config.position, pairs=pairs))
        plan, unused = plan_conversion(family, config, weights, opened.names)
        family.verify(config, weights)
        loaded_tokenizer = _read_tokenizer(opened.folder, tokenizer, config, opened.generation)
        tensors, changes = convert(plan, weights)
        template, template_notes = _read_template(opened, tokenizer, config)
    generation = replace(opened.generation, chat_template=template)
    notes = (*opened.notes, *unused, *changes, *family.notes(settings.data), *template_notes)
    return Imported(str(path), config, generation, loaded_tokenizer, tensors, notes)


def _read_template(
    opened: _Opened, tokenizer: str | None, config: ModelConfig
) -> tuple[ChatTemplate | None, tuple[str, ...]]:
    """The chat template of a generator, from where its tokenizer comes."""
    if "generate" not in config.verbs or tokenizer == "bytes":
        return None, ()
    return read_chat_template(opened.folder if tokenizer is None else Path(tokenizer))


def read_model_config(path: Path, *, allow_bin: bool = False) -> AnyModelConfig:
    """The config of a checkpoint, by its settings and tensor names; no data is read."""
    if path.suffix == GGUF:
        from clearformer.hub.gguf_import import read_gguf_config

        return read_gguf_config(path)
    weights = _open_weights(path, allow_bin)
    if isinstance(weights, SafetensorsFile) and METADATA_KEY in weights.metadata:
        return model_from_json(json.loads(weights.metadata[METADATA_KEY])["model"])
    with _naming(path):
        return _open(path, weights).config


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the folder to an error that does not name it."""
    folder = path.parent if path.is_file() else path
    try:
        yield
    except ValueError as problem:
        sentence = str(problem)
        raise ValueError(sentence if str(folder) in sentence else f"{folder}: {sentence}") from None


def _open(path: Path, weights: Weights) -> _Opened:
    folder = path.parent if path.is_file() else path
    config_path = folder / "config.json"
    if not config_path.exists():
        raise ValueError(f"{folder} has no config.json, which says what the weights mean")
    data = read_json(config_path)
    if not isinstance(data, dict):
        raise ValueError(f"{config_path} is not a JSON object")
    if data.get("kind") == "RunConfig":
        raise _is_a_run(folder)
    data, notes = guess_model_type(data)
    family = family_of(data, str(config_path))
    settings = HFConfig(family.merge_files(folder, data), str(config_path))
    names = family.canonical(list(weights.names()))
    config = replace(family.read_config(settings, names), name=model_name(family, folder))
    generation = family.read_generation(settings, config)
    if settings.ignored:
        noun = "a setting" if len(settings.ignored) == 1 else "settings"
        keys = first_few(settings.ignored)
        notes += (f"ignored, {noun} that this kind of model does not have: {keys}",)
    return _Opened(folder, weights, family, settings, names, config, generation, notes)


def _is_a_run(folder: Path) -> ValueError:
    return ValueError(f"{folder} is a run of clearformer already: use it as it is")


def _open_weights(path: Path, allow_bin: bool) -> Weights:
    if path.is_file():
        return _weights_of_file(path, allow_bin)
    if not path.is_dir():
        raise ValueError(f"there is no folder or file {path}")
    if (path / "checkpoints").is_dir():
        raise _is_a_run(path)
    weights = open_weights(path)
    if weights is not None:
        return weights
    if (path / PICKLED).exists():
        return _weights_of_file(inside(path, PICKLED), allow_bin)
    raise ValueError(f"{path} has no weights: neither {WEIGHTS}, nor {INDEX}, nor {PICKLED}")


def _weights_of_file(path: Path, allow_bin: bool) -> Weights:
    if path.suffix == ".safetensors":
        return SafetensorsFile(path)
    if path.suffix not in (".bin", ".pt", ".pth"):
        raise ValueError(
            f"{path} is not a file of weights: their names end in .safetensors, .gguf, .bin or .pt"
        )
    if not allow_bin:
        raise ValueError(
            f"{path} is a pickle, a format that can carry code: add --allow-bin to read the "
            f"weights in it and nothing else, or ask its publisher for safetensors"
        )
    return PickleFile(path)


def _import_own(file: SafetensorsFile, where: str) -> Imported:
    """Read a file that `export --to safetensors` wrote."""
    try:
        metadata = json.loads(file.metadata[METADATA_KEY])
        if not isinstance(metadata, dict):
            raise ValueError("they are not a JSON object")
        config, generation = model_and_generation_from_json(
            metadata["model"], metadata.get("generation")
        )
        tokenizer = tokenizer_from_json(metadata["tokenizer"])
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ValueError(f"{where} has invalid metadata: {problem}") from None
    shapes = {name: tuple(p.shape) for name, p in outline(config).named_parameters()}
    if shapes != {name: file.shape(name) for name in file.names()}:
        wrong = [n for n in shapes if n not in file.entries or file.shape(n) != shapes[n]]
        extra = [n for n in file.names() if n not in shapes]
        raise ValueError(
            f"{where}: its tensors do not match its config: see {first_few(wrong + extra)}"
        )
    require_size(tokenizer, config, generation, where)
    tensors = {name: to_float32(name, file.tensor(name)) for name in shapes}
    return Imported(where, config, generation, tokenizer, tensors, ())


def model_name(family: Family, folder: Path) -> str:
    path = folder.resolve()
    # The hub's cache: models--OWNER--NAME/snapshots/REVISION.
    cached = path.parent.name == "snapshots"
    title = path.parents[1].name.rpartition("--")[2] if cached else path.name
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip("-") or "imported"
    has_family = name == family.name or name.startswith(f"{family.name}-")
    return name if has_family else f"{family.name}-{name}"


def _read_tokenizer(
    folder: Path, source: str | None, config: ModelConfig, generation: GenerationDefaults
) -> Tokenizer | None:
    tokenizer = read_tokenizer(folder) if source is None else _named_tokenizer(source)
    if tokenizer is not None:
        require_size(tokenizer, config, generation, str(folder))
    return tokenizer


def _named_tokenizer(source: str) -> Tokenizer:
    """The tokenizer that the user asked for: bytes, or that of a folder."""
    tokenizer = Bytes() if source == "bytes" else read_tokenizer(Path(source))
    if tokenizer is None:
        raise ValueError(
            f"{source} has no tokenizer: no tokenizer.json, source.spm, vocab.json or vocab.txt"
        )
    return tokenizer


def require_size(
    tokenizer: Tokenizer, config: AnyModelConfig, generation: GenerationDefaults, where: str
) -> None:
    size = tokenizer.size
    # A translator that was trained here has its start and end tokens after the tokenizer's ids.
    size += sum(id >= size for id in set(generation.target_ids or ()))
    if size != config.vocabulary:
        raise ValueError(
            f"{where}: its tokenizer has {tokenizer.size:,} tokens, but its embedding "
            f"{config.vocabulary:,}: they do not belong together"
        )
