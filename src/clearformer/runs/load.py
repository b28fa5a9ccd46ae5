"""Loading a trained model with its config and tokenizer, from a run or from one checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor

from clearformer import safe_files
from clearformer.builder import build
from clearformer.config import RunConfig, Verb, run_from_json
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.generate.translate import Translator
from clearformer.inference.int8 import dequantized, load_int8
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


def open_run(
    path: Path | str, make: Builder = build, verb: Verb = "embed", *, dequantize: bool = False
) -> Opened:
    """Load the best checkpoint of a run (see checkpoint_choice.py), or the one in `path`.

    `make` is the builder of a model that was trained with a custom one (`Run(..., make=builder)`).
    `dequantize` gives one in int8 float weights. ValueError for a model that does not support
    `verb`.
    """
    notes: list[str] = []
    model, config, tokenizer, saved = open_any(path, make, notes.append, dequantize=dequantize)
    config.model.require_verb(verb, path)
    return Opened(cast(Transformer, model), config, tokenizer, saved, *notes)


def open_translator(path: Path | str, make: Builder = build) -> OpenedTranslator:
    """Load an encoder-decoder; see `open_run`."""
    notes: list[str] = []
    model, config, tokenizer, saved = open_any(path, make, notes.append)
    config.model.require_verb("translate", path)
    translator = TranslationTask(config.model).translator(model, config.generation, tokenizer, path)
    return OpenedTranslator(translator, config, saved, *notes)


def open_any(
    path: Path | str,
    make: Builder = build,
    say: Say = ignore_note,
    *,
    dequantize: bool = False,
    base: Path | None = None,
) -> OpenedAny:
    """Load a model of any kind; `say` gets the reason for the checkpoint, if there are others.

    `base` is where the model is that an adapter was trained for, if it was moved.
    """
    saved, choice = chosen_checkpoint(Path(path))
    if choice is not None and choice.other is not None:
        other = Path(path) / "checkpoints" / f"step-{choice.other}"
        say(f"{path}: step {choice.step}, {choice.why}; for that one give {other}")
    try:
        return _opened(saved, make, dequantize, base)
    except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        # Valid hashes do not make a file trustworthy.
        raise ValueError(
            f"{saved.folder} is not a valid checkpoint ({type(problem).__name__}: "
            f"{problem!s:.80}): get it again from its source"
        ) from None


def _opened(
    saved: Checkpoint, make: Builder, dequantize: bool = False, base: Path | None = None
) -> OpenedAny:
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
    if has_int8(saved) and not dequantize:
        load_int8(model, saved.tensors(INT8))
    elif has_adapter(saved):
        from clearformer.runs.adapter_base import load_adapter  # which opens another run

        tensors = saved_weights(saved, config, state.ADAPTER)
        load_adapter(model, saved, config, tensors, make, base)
    elif has_int8(saved):
        state.adopt_weights(model, dequantized(saved.tensors(INT8)), str(saved.folder))
    else:
        state.adopt_weights(model, saved_weights(saved, config, state.WHOLE), str(saved.folder))
    if make is not build and not has_int8(saved):
        state.load_buffers(model, saved.tensors("state.safetensors"), str(saved.folder))
    return OpenedAny(model.eval(), config, tokenizer, saved)


def saved_weights(
    saved: Checkpoint, config: RunConfig, which: state.SavedWeights
) -> dict[str, Tensor]:
    """The weights in a checkpoint; those of the EMA if there is one, since it was evaluated."""
    tensors = saved.tensors(which.file)
    if config.train.ema_decay is None:
        return tensors
    averages = saved.tensors("state.safetensors")
    return {name: averages.get(f"average.{name}", value) for name, value in tensors.items()}


def is_run(path: Path) -> bool:
    """Whether a path is that of a run or of one of its checkpoints."""
    return os.path.lexists(path / "manifest.json") or os.path.lexists(path / "checkpoints")


def is_peft(path: Path) -> bool:
    """Whether a path is that of an adapter of PEFT."""
    return os.path.lexists(path / "adapter_config.json")


def has_int8(saved: Checkpoint) -> bool:
    """Whether the weights of a checkpoint are int8: for inference, not for training."""
    return INT8 in saved.manifest["files"]


def has_adapter(saved: Checkpoint) -> bool:
    """Whether a checkpoint holds an adapter alone, for another model."""
    return state.ADAPTER.file in saved.manifest["files"]


def require_floats(saved: Checkpoint, advice: str = "use the run that it was made from") -> None:
    if has_int8(saved):
        raise ValueError(f"{saved.folder} has int8 weights, which are for inference only: {advice}")


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
