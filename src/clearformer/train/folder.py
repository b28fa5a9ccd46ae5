"""Opening what a run left behind: a model with its tokenizer, from a run or one checkpoint.

A checkpoint carries its own config and tokenizer, so a model cannot be opened with another's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from clearformer.build import outline
from clearformer.config import RunConfig, Seq2SeqConfig, run_from_json
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.generate.translate import Translator
from clearformer.text import Tokenizer
from clearformer.text import from_json as tokenizer_from_json
from clearformer.text import sha256 as tokenizer_identity
from clearformer.train import checkpoint, state


@dataclass(frozen=True)
class Opened:
    """A trained model, ready for use."""

    model: Transformer
    config: RunConfig
    tokenizer: Tokenizer
    found: checkpoint.Checkpoint


@dataclass(frozen=True)
class OpenedTranslator:
    """A trained encoder-decoder, ready for use."""

    translator: Translator
    config: RunConfig
    found: checkpoint.Checkpoint


def open_run(path: Path | str) -> Opened:
    """The best checkpoint of a run, or the very one that `path` names."""
    model, config, tokenizer, found = open_any(path)
    if isinstance(model, Seq2Seq):
        raise ValueError(f"{path} is a translator: use clearformer translate or evaluate")
    return Opened(model, config, tokenizer, found)


def open_translator(path: Path | str) -> OpenedTranslator:
    """The same for an encoder-decoder."""
    model, config, tokenizer, found = open_any(path)
    if not isinstance(model, Seq2Seq) or not isinstance(config.model, Seq2SeqConfig):
        raise ValueError(
            f"{path} is no translator but {config.model.name}: use clearformer generate or "
            f"classify, or train an original"
        )
    if config.model.marks is None:
        raise ValueError(f"{path}: its config has no marks, so nobody knows where targets end")
    return OpenedTranslator(Translator(model, config.model, tokenizer), config, found)


def open_any(
    path: Path | str,
) -> tuple[Transformer | Seq2Seq, RunConfig, Tokenizer, checkpoint.Checkpoint]:
    """Either of them, for whoever takes both."""
    found = best_checkpoint(Path(path))
    config = run_from_json(found.json("config.json"))
    tokenizer = tokenizer_from_json(found.json("tokenizer.json"))
    if tokenizer_identity(tokenizer) != found.manifest.get("tokenizer"):
        raise ValueError(f"{found.folder}: its tokenizer is not the one it was trained with")
    model = outline(config.model)
    tensors = found.tensors("model.safetensors")
    if config.train.ema is not None:
        # What was evaluated is the running average, so that is what is used.
        others = found.tensors("state.safetensors")
        tensors = {name: others[f"average.{name}"] for name in tensors}
    state.adopt_weights(model, tensors, str(found.folder))
    model.eval()
    torch.set_num_threads(config.train.threads or torch.get_num_threads())
    return model, config, tokenizer, found


def is_translator(path: Path) -> bool:
    """Whether a run is an encoder-decoder, without opening its weights."""
    model = run_from_json(best_checkpoint(path).json("config.json")).model
    return isinstance(model, Seq2SeqConfig)


def best_checkpoint(path: Path) -> checkpoint.Checkpoint:
    """The best checkpoint of the run in `path`, found whole, or `path` itself if it is one."""
    if (path / "manifest.json").exists():
        return checkpoint.verify(path)
    folder = path / "checkpoints"
    if not folder.is_dir():
        raise ValueError(
            f"{path} is no run: it has no checkpoints folder. Give what --out named in "
            f"clearformer train"
        )
    newest = checkpoint.newest(folder, lambda sentence: None)
    if newest is None:
        raise ValueError(f"{path} has no checkpoint yet: let it train a little longer")
    best = newest.json("state.json")["best"]
    if best is not None and best["step"] != newest.step:
        try:
            return checkpoint.verify(folder / f"step-{best['step']}")
        except ValueError:
            return newest  # the best one is damaged or gone; the newest holds
    return newest
