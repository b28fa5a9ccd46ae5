"""From somebody's checkpoint to a config, a tokenizer and tensors of ours.

Settings, names, shapes and the size of the vocabulary are all checked before a single number is
read. Nothing is written here, and nothing in a checkpoint is run.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from torch import Tensor

from clearformer.build import outline
from clearformer.config import (
    AnyModelConfig,
    ModelConfig,
    Rotary,
    Seq2SeqConfig,
    model_from_json,
)
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.hub.convert import convert, few, floats, make_plan
from clearformer.hub.family import Family
from clearformer.hub.hf_config import Settings
from clearformer.hub.pickle_files import PickleFile
from clearformer.hub.registry import family_of, with_model_type
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


@dataclass(frozen=True)
class Imported:
    """A checkpoint, read and checked."""

    source: str
    config: AnyModelConfig
    tokenizer: Tokenizer | None
    tensors: dict[str, Tensor]  # under our names, each shared one once
    notes: tuple[str, ...]  # what the user should know

    def model(self) -> Transformer | Seq2Seq:
        """The model itself, in evaluation mode; its weights are these very tensors."""
        model = outline(self.config)
        state.adopt_weights(model, self.tensors, self.source)
        return model.eval()


def import_checkpoint(
    path: Path,
    *,
    tokenizer: str | None = None,
    allow_bin: bool = False,
    pairs: Literal["halves", "neighbours"] = "halves",
) -> Imported:
    """A Hugging Face folder, or one file of weights with its config.json beside it.

    `tokenizer` names another folder to take it from, or is "bytes"; `pairs` says how rotary
    components lie, which no config.json tells.
    """
    if path.is_file():
        weights = _weights_of_file(path, allow_bin)
        folder = path.parent
        if isinstance(weights, SafetensorsFile) and OWN in weights.metadata:
            return _own(weights, str(path))
    elif path.is_dir():
        folder = path
        if (folder / "checkpoints").is_dir():
            raise _already_ours(folder)
        weights = _weights_of_folder(path, allow_bin)
    else:
        raise ValueError(f"there is no folder or file {path}")
    config_path = folder / "config.json"
    if not config_path.exists():
        raise ValueError(f"{folder} has no config.json, which says what the weights mean")
    data = read_json(config_path)
    if not isinstance(data, dict):
        raise ValueError(f"{config_path} is no object")
    if data.get("kind") == "RunConfig":
        raise _already_ours(folder)
    data, assumed = with_model_type(data)
    family = family_of(data, str(config_path))
    try:
        settings = Settings(family.gather(folder, data), str(config_path))
        present = family.canonical(list(weights.names()))
        config = family.read(settings, present)
        if isinstance(config.position, Rotary):
            config = replace(config, position=replace(config.position, pairs=pairs))
        config = replace(config, name=_name(family, folder))
        plan, notes = make_plan(family, config, weights, present)
        family.verify(config, weights)
        found = _tokenizer(folder, tokenizer, config)
        tensors, more = convert(plan, weights)
    except ValueError as problem:
        sentence = str(problem)
        raise ValueError(sentence if str(folder) in sentence else f"{folder}: {sentence}") from None
    told = (*assumed, *_ignored(settings), *notes, *more, *family.notes(settings.data))
    return Imported(str(path), config, found, tensors, told)


def _ignored(settings: Settings) -> list[str]:
    """What is said of keys that change no number, since the reference does not read them."""
    keys = settings.ignored
    what = "a setting" if len(keys) == 1 else "settings"
    return [f"ignored, {what} that this kind of model does not have: {few(keys)}"] if keys else []


def _already_ours(folder: Path) -> ValueError:
    return ValueError(f"{folder} is a run of clearformer already: use it as it is")


def read_model_config(path: Path, *, allow_bin: bool = False) -> AnyModelConfig:
    """What a checkpoint is, by its settings and the names of its tensors; no number is read."""
    if path.is_file():
        file = SafetensorsFile(path)
        if OWN in file.metadata:
            return model_from_json(json.loads(file.metadata[OWN])["model"])
    folder = path.parent if path.is_file() else path
    data = read_json(folder / "config.json")
    if not isinstance(data, dict):
        raise ValueError(f"{folder / 'config.json'} is no object")
    data, _ = with_model_type(data)
    family = family_of(data, str(folder / "config.json"))
    weights = SafetensorsFile(path) if path.is_file() else _weights_of_folder(path, allow_bin)
    present = family.canonical(list(weights.names()))
    config = family.read(Settings(data, str(folder / "config.json")), present)
    return replace(config, name=_name(family, folder))


# --- what is there -------------------------------------------------------------------------

OWN = "clearformer"  # the key under which our own files carry their config and tokenizer


def _weights_of_folder(folder: Path, allow_bin: bool) -> Weights:
    weights = open_weights(folder)
    if weights is not None:
        return weights
    if (folder / PICKLED).exists():
        return _weights_of_file(inside(folder, PICKLED), allow_bin)
    raise ValueError(f"{folder} has no weights: neither {WEIGHTS}, nor {INDEX}, nor {PICKLED}")


def _weights_of_file(path: Path, allow_bin: bool) -> Weights:
    if path.suffix == ".safetensors":
        return SafetensorsFile(path)
    if path.suffix not in (".bin", ".pt", ".pth"):
        raise ValueError(f"{path} is no file of weights: those end in .safetensors, .bin or .pt")
    if not allow_bin:
        raise ValueError(
            f"{path} is a pickle, a format that can carry code: add --allow-bin to read the "
            f"weights in it and nothing else, or ask its maker for safetensors"
        )
    return PickleFile(path)


def _own(file: SafetensorsFile, where: str) -> Imported:
    """What `export --to safetensors` wrote: everything in one file."""
    try:
        about = json.loads(file.metadata[OWN])
        if not isinstance(about, dict):
            raise ValueError("they are no object")
        config = model_from_json(about["model"])
        tokenizer = tokenizer_from_json(about["tokenizer"])
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ValueError(f"{where} has metadata that do not fit: {problem}") from None
    shapes = {name: tuple(p.shape) for name, p in outline(config).named_parameters()}
    if shapes != {name: file.shape(name) for name in file.names()}:
        wrong = [n for n in shapes if n not in file.entries or file.shape(n) != shapes[n]]
        extra = [n for n in file.names() if n not in shapes]
        raise ValueError(f"{where} does not hold its own model: see {few(wrong + extra)}")
    _require_size(tokenizer, config, where)
    tensors = {name: floats(name, file.tensor(name)) for name in shapes}
    return Imported(where, config, tokenizer, tensors, ())


def _name(family: Family, folder: Path) -> str:
    place = folder.resolve()
    # The hub's own cache: models--OWNER--NAME/snapshots/REVISION.
    cached = place.parent.name == "snapshots"
    called = place.parents[1].name.rpartition("--")[2] if cached else place.name
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", called).strip("-") or "imported"
    own = name == family.name or name.startswith(f"{family.name}-")
    return name if own else f"{family.name}-{name}"


def _tokenizer(folder: Path, asked: str | None, config: ModelConfig) -> Tokenizer | None:
    if asked == "bytes":
        tokenizer: Tokenizer | None = Bytes()
    elif asked is not None:
        tokenizer = read_tokenizer(Path(asked))
        if tokenizer is None:
            raise ValueError(
                f"{asked} has no tokenizer: no tokenizer.json, source.spm, vocab.json or vocab.txt"
            )
    else:
        tokenizer = read_tokenizer(folder)
    if tokenizer is not None:
        _require_size(tokenizer, config, str(folder))
    return tokenizer


def _require_size(tokenizer: Tokenizer, config: AnyModelConfig, where: str) -> None:
    size = tokenizer.size
    if isinstance(config, Seq2SeqConfig) and config.marks is not None:
        # The marks of a translator that was trained here come after its tokenizer's ids.
        size += sum(mark >= size for mark in {config.marks.start, config.marks.end})
    if size != config.vocabulary:
        raise ValueError(
            f"{where}: its tokenizer has {tokenizer.size:,} tokens, but its embedding "
            f"{config.vocabulary:,}: they do not belong together"
        )
