"""Loading a trained model with its config and tokenizer, from a run or from one checkpoint."""

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
from clearformer.runs.checkpoint import Checkpoint
from clearformer.runs.checkpoint_choice import Choice, choose
from clearformer.runs.fingerprint import Builder, model_for
from clearformer.tasks.translation import TranslationTask
from clearformer.text import Tokenizer
from clearformer.text import from_json as tokenizer_from_json
from clearformer.text import sha256 as tokenizer_identity
from clearformer.training.device import set_threads

Say = Callable[[str], None]
INT8 = "int8.safetensors"  # instead of model.safetensors
SOURCE_RUN = "quantized_from"  # in the manifest of a run in int8: the folder of that in float32


def ignore_note(sentence: str) -> None:
    """Discard a note."""


@dataclass(frozen=True)
class Opened:
    """A trained model, ready for use."""

    model: Transformer
    config: RunConfig
    tokenizer: Tokenizer
    checkpoint: Checkpoint
    note: str | None = None  # the reason for this checkpoint, if there are others


class OpenedAny(NamedTuple):
    """A trained model or encoder-decoder, ready for use."""

    model: Transformer | Seq2Seq
    config: RunConfig
    tokenizer: Tokenizer
    checkpoint: Checkpoint


@dataclass(frozen=True)
class OpenedTranslator:
    """A trained encoder-decoder, ready for use."""

    translator: Translator
    config: RunConfig
    checkpoint: Checkpoint
    note: str | None = None


def open_run(path: Path | str, make: Builder = build, verb: Verb = "embed") -> Opened:
    """Load the best checkpoint of a run (see checkpoint_choice.py), or the one in `path`.

    `make` is the builder of a model that was trained with a custom one (`Run(..., make=builder)`).
    ValueError for a model that does not support `verb`.
    """
    notes: list[str] = []
    model, config, tokenizer, saved = open_any(path, make, notes.append)
    config.model.require_verb(verb, path)
    return Opened(cast(Transformer, model), config, tokenizer, saved, *notes)


def open_translator(path: Path | str, make: Builder = build) -> OpenedTranslator:
    """Load an encoder-decoder; see `open_run`."""
    notes: list[str] = []
    model, config, tokenizer, saved = open_any(path, make, notes.append)
    config.model.require_verb("translate", path)
    translator = TranslationTask(config.model).translator(model, config.generation, tokenizer, path)
    return OpenedTranslator(translator, config, saved, *notes)


def open_any(path: Path | str, make: Builder = build, say: Say = ignore_note) -> OpenedAny:
    """Load a model of any kind; `say` gets the reason for the checkpoint, if there are others."""
    saved, choice = chosen_checkpoint(Path(path))
    if choice is not None and choice.other is not None:
        other = Path(path) / "checkpoints" / f"step-{choice.other}"
        say(f"{path}: step {choice.step}, {choice.why}; for that one give {other}")
    try:
        return _opened(saved, make)
    except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        # Valid hashes do not make a file trustworthy.
        raise ValueError(
            f"{saved.folder} is not a valid checkpoint ({type(problem).__name__}: "
            f"{problem!s:.80}): get it again from its source"
        ) from None


def _opened(saved: Checkpoint, make: Builder) -> OpenedAny:
    config = run_from_json(saved.json("config.json"))
    tokenizer = tokenizer_from_json(saved.json("tokenizer.json"))
    if tokenizer_identity(tokenizer) != saved.manifest.get("tokenizer"):
        raise ValueError(f"{saved.folder}: the tokenizer is not the one it was trained with")
    if tokenizer.size > config.model.vocabulary:  # a translator also has start and end tokens
        raise ValueError(
            f"{saved.folder}: the tokenizer has {tokenizer.size:,} tokens, but the model has "
            f"{config.model.vocabulary:,}: they do not belong together"
        )
    model = model_for(saved, config, make)
    set_threads(config.train.threads or torch.get_num_threads())
    if has_int8(saved):
        load_int8(model, saved.tensors(INT8))
        return OpenedAny(model.eval(), config, tokenizer, saved)
    tensors = saved.tensors("model.safetensors")
    if config.train.ema_decay is not None or make is not build:
        others = saved.tensors("state.safetensors")
    if config.train.ema_decay is not None:
        # The EMA was evaluated, so it is used.
        tensors = {name: others[f"average.{name}"] for name in tensors}
    state.adopt_weights(model, tensors, str(saved.folder))
    if make is not build:
        state.load_buffers(model, others, str(saved.folder))
    return OpenedAny(model.eval(), config, tokenizer, saved)


def is_run(path: Path) -> bool:
    """Whether a path is that of a run or of one of its checkpoints."""
    return os.path.lexists(path / "manifest.json") or os.path.lexists(path / "checkpoints")


def has_int8(saved: Checkpoint) -> bool:
    """Whether the weights of a checkpoint are int8: for inference, not for training."""
    return INT8 in saved.manifest["files"]


def require_floats(saved: Checkpoint) -> None:
    if has_int8(saved):
        raise ValueError(
            f"{saved.folder} has int8 weights, which are for inference only: use the run that it "
            f"was made from"
        )


def best_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint of the run in `path` to use, or `path` itself if it is one; verified."""
    return chosen_checkpoint(path)[0]


def chosen_checkpoint(path: Path) -> tuple[Checkpoint, Choice | None]:
    """The checkpoint to use, with the reason; None if `path` is a checkpoint."""
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
            f"the best checkpoint is damaged: {problem}; the newest is intact: use {newest.folder}"
        ) from None


def _newest(path: Path) -> Checkpoint:
    folder = path / "checkpoints"
    safe_files.require_folder(folder)
    if not folder.is_dir():
        raise ValueError(
            f"{path} is not a run: it has no checkpoints folder. Use the folder that was --out of "
            f"clearformer train"
        )
    passed_over: list[str] = []
    newest = checkpoint.newest(folder, passed_over.append)
    if newest is None:
        raise ValueError(f"{path} has no checkpoint yet: let it train a little longer")
    if passed_over:
        # Training continues from an older checkpoint with a note, but results must not silently
        # come from another checkpoint than expected.
        raise ValueError(
            f"{passed_over[0].removeprefix(checkpoint.PASSED_OVER)}; the newest intact one is "
            f"{newest.folder}: use that one, or continue from it with clearformer train --resume"
        )
    return newest
