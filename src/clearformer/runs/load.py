"""Opening what a run left behind: a model with its tokenizer, from a run or one checkpoint.

A checkpoint carries its own config and tokenizer, so a model cannot be opened with another's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import torch

from clearformer import safe_files
from clearformer.builder import build
from clearformer.config import RunConfig, Verb, run_from_json
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.generate.translate import Translator
from clearformer.inference.int8 import load_int8
from clearformer.runs import checkpoint, state
from clearformer.runs.checkpoint_choice import Choice, choose
from clearformer.runs.fingerprint import Builder, built
from clearformer.tasks.translation import TranslationTask
from clearformer.text import Tokenizer
from clearformer.text import from_json as tokenizer_from_json
from clearformer.text import sha256 as tokenizer_identity
from clearformer.training.device import set_threads

Say = Callable[[str], None]
INT8 = "int8.safetensors"  # instead of model.safetensors: what needs floats does not find them
SOURCE_RUN = "quantized_from"  # in the manifest of a run in int8: the folder of that in float32


def nothing_said(sentence: str) -> None:
    """For whoever does not want to know."""


@dataclass(frozen=True)
class Opened:
    """A trained model, ready for use."""

    model: Transformer
    config: RunConfig
    tokenizer: Tokenizer
    found: checkpoint.Checkpoint
    note: str | None = None  # why this checkpoint, where another could have been used


class OpenedAny(NamedTuple):
    """A trained model of either kind, ready for use."""

    model: Transformer | Seq2Seq
    config: RunConfig
    tokenizer: Tokenizer
    found: checkpoint.Checkpoint


@dataclass(frozen=True)
class OpenedTranslator:
    """A trained encoder-decoder, ready for use."""

    translator: Translator
    config: RunConfig
    found: checkpoint.Checkpoint
    note: str | None = None


def open_run(path: Path | str, make: Builder = build, verb: Verb = "embed") -> Opened:
    """The checkpoint of a run to use (see choice.py), or the very one that `path` names.

    A model that was trained with a builder of one's own (`Run(..., make=builder)`) is opened with
    the same one. ValueError for a model that does not answer `verb`.
    """
    notes: list[str] = []
    model, config, tokenizer, found = open_any(path, make, notes.append)
    config.model.require_verb(verb, path)
    return Opened(cast(Transformer, model), config, tokenizer, found, *notes)


def open_translator(path: Path | str, make: Builder = build) -> OpenedTranslator:
    """The same for an encoder-decoder."""
    notes: list[str] = []
    model, config, tokenizer, found = open_any(path, make, notes.append)
    config.model.require_verb("translate", path)
    translator = TranslationTask(config.model).translator(model, tokenizer, path)
    return OpenedTranslator(translator, config, found, *notes)


def open_any(path: Path | str, make: Builder = build, say: Say = nothing_said) -> OpenedAny:
    """Either of them, for whoever takes both; `say` is told why this checkpoint, where another
    could have been used."""
    found, choice = chosen_checkpoint(Path(path))
    if choice is not None and choice.other is not None:
        other = Path(path) / "checkpoints" / f"step-{choice.other}"
        say(f"{path}: step {choice.step}, {choice.why}; for that one give {other}")
    try:
        return _opened(found, make)
    except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        # Whoever can write hashes can write anything: what does not fit is said, not trusted.
        raise ValueError(
            f"{found.folder} is not what clearformer writes ({type(problem).__name__}: "
            f"{problem!s:.80}): take it again from its source"
        ) from None


def _opened(found: checkpoint.Checkpoint, make: Builder) -> OpenedAny:
    config = run_from_json(found.json("config.json"))
    tokenizer = tokenizer_from_json(found.json("tokenizer.json"))
    if tokenizer_identity(tokenizer) != found.manifest.get("tokenizer"):
        raise ValueError(f"{found.folder}: its tokenizer is not the one it was trained with")
    if tokenizer.size > config.model.vocabulary:  # a translator has marks besides
        raise ValueError(
            f"{found.folder}: its tokenizer has {tokenizer.size:,} tokens, but the model "
            f"{config.model.vocabulary:,}: they do not belong together"
        )
    model = built(found, config, make)
    set_threads(config.train.threads or torch.get_num_threads())
    if has_int8(found):
        load_int8(model, found.tensors(INT8))
        return OpenedAny(model.eval(), config, tokenizer, found)
    tensors = found.tensors("model.safetensors")
    if config.train.ema_decay is not None or make is not build:
        others = found.tensors("state.safetensors")
    if config.train.ema_decay is not None:
        # What was evaluated is the running average, so that is what is used.
        tensors = {name: others[f"average.{name}"] for name in tensors}
    state.adopt_weights(model, tensors, str(found.folder))
    if make is not build:
        state.load_buffers(model, others, str(found.folder))
    return OpenedAny(model.eval(), config, tokenizer, found)


def is_run(path: Path) -> bool:
    """Whether a path is that of a run or of one of its checkpoints."""
    return os.path.lexists(path / "manifest.json") or os.path.lexists(path / "checkpoints")


def has_int8(found: checkpoint.Checkpoint) -> bool:
    """Whether a checkpoint's weights are in eight bits: good for use, not for training."""
    return INT8 in found.manifest["files"]


def require_floats(found: checkpoint.Checkpoint) -> None:
    if has_int8(found):
        raise ValueError(
            f"{found.folder} has its weights in int8, which is good for use alone: take the run "
            f"that it was made from"
        )


def best_checkpoint(path: Path) -> checkpoint.Checkpoint:
    """The checkpoint of the run in `path` to use, found whole, or `path` itself if it is one."""
    return chosen_checkpoint(path)[0]


def chosen_checkpoint(path: Path) -> tuple[checkpoint.Checkpoint, Choice | None]:
    """The same with why it is the one; none: `path` left no choice."""
    if os.path.lexists(path / "manifest.json"):
        return checkpoint.verify(path), None
    newest = _newest(path)
    numbers, config = newest.json("state.json"), run_from_json(newest.json("config.json"))
    numbers = numbers if isinstance(numbers, dict) else {}
    choice = choose(numbers, newest.step, config.train.schedule)
    folder = path / "checkpoints"
    if choice.step == newest.step:
        return newest, choice
    if choice.step not in dict(checkpoint.numbered(folder)):
        return newest, Choice(newest.step, "the last checkpoint; the best one is gone")
    try:
        return checkpoint.verify_in_run(folder / f"step-{choice.step}"), choice
    except ValueError as problem:
        raise ValueError(
            f"the best checkpoint is damaged: {problem}; the newest holds: give {newest.folder}"
        ) from None


def _newest(path: Path) -> checkpoint.Checkpoint:
    folder = path / "checkpoints"
    safe_files.require_folder(folder)
    if not folder.is_dir():
        raise ValueError(
            f"{path} is no run: it has no checkpoints folder. Give what --out named in "
            f"clearformer train"
        )
    passed_over: list[str] = []
    newest = checkpoint.newest(folder, passed_over.append)
    if newest is None:
        raise ValueError(f"{path} has no checkpoint yet: let it train a little longer")
    if passed_over:
        # Training goes on from the one before and says so; whoever asks for a result is not
        # given another one than he asked for.
        raise ValueError(
            f"{passed_over[0].removeprefix(checkpoint.PASSED_OVER)}; the newest that holds is "
            f"{newest.folder}: give that one, or let clearformer train --resume go on from it"
        )
    return newest
