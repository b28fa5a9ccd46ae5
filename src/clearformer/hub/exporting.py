"""A model of ours as others open it: a Hugging Face folder, or one safetensors file.

Which family's form fits is found by trying: settings are written and read again, and what comes
back must be the same model. What was written is opened again by our own importer and compared,
logits first and then fifty greedy tokens, before it gets its name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from clearformer.build import outline
from clearformer.config import (
    AnyModelConfig,
    Classifier,
    ModelConfig,
    NextToken,
    Seq2SeqConfig,
    to_json,
)
from clearformer.core.model import Transformer
from clearformer.generate.choose import Sampling
from clearformer.generate.stream import stream
from clearformer.generate.writer import Writer
from clearformer.hub import names
from clearformer.hub.family import Family
from clearformer.hub.importing import OWN, read
from clearformer.hub.kinds import FAMILIES
from clearformer.hub.llama import in_halves
from clearformer.hub.settings import Settings
from clearformer.hub.tensors import WEIGHTS
from clearformer.hub.vocabulary import write_tokenizer
from clearformer.hub.writing import whole_or_nothing, write_json
from clearformer.text import Tokenizer
from clearformer.train import state

GREEDY = 50  # tokens that must come out alike
MOST_LIKELY = Sampling(temperature=0)
NEAR = 1e-5


@dataclass(frozen=True)
class Exported:
    """What was written, and how it was found to agree."""

    path: Path
    form: str  # an architecture of theirs, or safetensors
    difference: float  # the largest between logits before and after
    tokens: int  # greedy tokens that came out alike; 0 of a model that generates none
    notes: tuple[str, ...] = ()


def to_huggingface(
    model: Transformer, config: AnyModelConfig, tokenizer: Tokenizer, out: Path
) -> Exported:
    """A folder that `AutoModel` and `AutoTokenizer` open."""
    _require_free(out)
    config, tensors = in_halves(_one_stack(config), state.weights(model))
    family, settings = fitting(config)
    rows = family.rows(config)
    theirs: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        found, layout = names.find(rows, name)
        cut = layout.cut(tensor.float().cpu(), config)
        theirs |= {each: part.contiguous() for each, part in zip(found, cut, strict=True)}
    with whole_or_nothing(out) as folder:
        ids = write_tokenizer(tokenizer, folder, config.length)
        write_json(folder / "config.json", {**settings, **ids, "dtype": "float32"})
        save_file(theirs, folder / WEIGHTS, metadata={"format": "pt"})
        _open_mode(folder / WEIGHTS)
        difference, tokens = compare(model, folder, config)
    return Exported(
        out, settings["architectures"][0], difference, tokens, _unsaid(config, family, settings)
    )


def to_safetensors(
    model: Transformer, config: AnyModelConfig, tokenizer: Tokenizer, out: Path
) -> Exported:
    """One file under our own names, with config and tokenizer in it."""
    if out.suffix != ".safetensors":
        raise ValueError(f"{out} must end in .safetensors")
    _require_free(out)
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


# --- which form fits -----------------------------------------------------------------------

# What says nothing about the function a model computes.
BESIDE = {"name", "init", "dropout", "past"}


def fitting(config: ModelConfig) -> tuple[Family, dict[str, Any]]:
    """The family that can express a config, and its settings there."""
    tried = [Fit(family, config) for family in FAMILIES]
    nearest = min(tried, key=lambda fit: (fit.far, len(fit.differences)))
    if nearest.differences:
        shown = "; ".join(nearest.differences[:3])
        raise ValueError(
            f"{config.name} has no counterpart among {', '.join(f.name for f in FAMILIES)}; the "
            f"nearest is {nearest.family.name}, but {shown}: use --to safetensors, which keeps any "
            f"model"
        )
    return nearest.family, nearest.settings


class Fit:
    """What would be lost by writing a config as a family does and reading it again."""

    def __init__(self, family: Family, config: ModelConfig) -> None:
        self.family = family
        self.settings = family.write(config)
        rows = family.rows(config)
        there: set[str] = set()
        nameless = []
        for name, _ in outline(config).named_parameters():
            try:
                there.update(names.find(rows, name)[0])
            except KeyError:
                nameless.append(name)
        try:
            again = family.read(Settings(self.settings, "config.json"), there)
        except ValueError as problem:
            self.far, self.differences = 2, [str(problem)]
            return
        # Another kind of head is never near, however few numbers differ.
        self.far = int(type(again.head) is not type(config.head))
        before, after = to_json(_plain(config)), to_json(_plain(again))
        self.differences = [
            f"its {name} is {_shown(after[name])} and not {_shown(before[name])}"
            for name in fields_of(config)
            if before[name] != after[name]
        ]
        if nameless and not self.differences:
            self.differences = [f"it has no {nameless[0]}"]


def fields_of(config: ModelConfig) -> list[str]:
    return [each.name for each in fields(config) if each.name not in BESIDE]


def _plain(config: ModelConfig) -> ModelConfig:
    """Two ways of writing one thing, as one."""
    head = config.head
    if isinstance(head, Classifier) and head.names is None:
        head = replace(head, names=tuple(f"LABEL_{i}" for i in range(head.classes)))
    return replace(config, key_heads=config.key_heads or config.heads, head=head)


def _shown(value: Any) -> str:
    """A value of a config in a few words."""
    match value:
        case list():
            return ", ".join(map(_shown, value))
        case {"kind": kind, **inner}:
            numbers = ", ".join(f"{key}={_shown(each)}" for key, each in inner.items())
            return f"{kind}({numbers})" if numbers else str(kind)
        case _:
            return str(value)


def _one_stack(config: AnyModelConfig) -> ModelConfig:
    if isinstance(config, Seq2SeqConfig):
        raise ValueError(
            f"{config.name} has an encoder and a decoder, which cannot be written for others yet: "
            f"use --to safetensors"
        )
    return config


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


# --- is it the same ------------------------------------------------------------------------


def compare(model: Transformer, path: Path, config: AnyModelConfig) -> tuple[float, int]:
    """Open what was written and let both speak; ValueError if they do not agree."""
    again = read(path).model()
    assert isinstance(again, Transformer)
    was_training = model.training
    model.eval()
    try:
        difference = _difference(model, again, config)
        if not difference <= NEAR:
            raise ValueError(
                f"what was written to {path} gives other logits (by {difference:.2g}): nothing is "
                f"kept; please report this"
            )
        return difference, _same_tokens(model, again, config, path)
    finally:
        model.train(was_training)


def _difference(model: Transformer, again: Transformer, config: AnyModelConfig) -> float:
    generator = torch.Generator().manual_seed(0)
    length = min(config.length, 16)
    tokens = torch.randint(config.vocabulary, (2, length), generator=generator)  # (B, T)
    keep = torch.arange(length) < torch.tensor([[length], [max(1, length - 3)]])  # (B, T)
    device = next(model.parameters()).device
    with torch.inference_mode():
        before = model(tokens.to(device), keep.to(device))
        after = again(tokens, keep)
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (before, after)), strict=True)
    return max(float((one.float().cpu() - other).abs().max()) for one, other in pairs)


def _same_tokens(model: Transformer, again: Transformer, config: AnyModelConfig, path: Path) -> int:
    if not isinstance(config.head, NextToken) or config.past is None:
        return 0
    texts = [
        [token.id for token in stream(Writer(each, config), [0], MOST_LIKELY, most=GREEDY)]
        for each in (model, again)
    ]
    if texts[0] != texts[1]:
        raise ValueError(
            f"what was written to {path} goes on with other tokens: nothing is kept; please report "
            f"this"
        )
    return len(texts[0])


def _require_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is there already: choose another --out")


def _open_mode(path: Path) -> None:
    """The mode that the umask asks for: safetensors makes its files private."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)
