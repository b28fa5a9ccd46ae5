"""Help of `clearformer train`: the usual settings; `--help-all` lists every one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from clearformer.cli.output import text_width
from clearformer.config.settings import at

# By group: the flag, its setting (None: of the command itself), and what it does.
USUAL_SETTINGS: dict[str, tuple[tuple[str, str | None, str], ...]] = {
    "Data": (
        ("--data", "data.source", "A file, a folder, a glob, a table (.csv, .tsv, .jsonl, .json, "
         ".xlsx, .parquet), a corpus by name, or - for standard input."),
        ("--text", "data.text_column", "Column of the texts, in a table."),
        ("--label", "data.label_column", "Column of the labels, in a table; a,b,c: several columns "
         "of 0 and 1, for multi-label."),
        ("--task", None, "What is predicted of a text: classes, multi-label or regression."),
        ("--validation", "data.validation", "A file to evaluate on, instead of a part of --data."),
        ("--validation-fraction", "data.validation_fraction", "How much of --data is held back."),
    ),
    "How long": (
        ("--minutes", "train.minutes", "Train by the clock."),
        ("--epochs", "train.epochs", "Train for so many passes over the data."),
        ("--steps", "train.steps", "Train for so many steps."),
        ("--patience", "train.patience", "Stop after so many evaluations without improvement."),
    ),
    "How it learns": (
        ("--learning-rate, --lr", "train.learning_rate", "Base learning rate."),
        ("--batch-size", "train.batch_size", "Sequences in a step."),
        ("--class-weights", "train.class_weights", "balanced: rare classes count as much as "
         "frequent ones."),
        ("--best-metric", "train.best_metric", "What decides the best checkpoint: accuracy, "
         "macro_f1 or loss."),
        ("--seed", "train.seed", "The same seed gives the same run."),
        ("--freeze", "train.freeze", "body: with --from, train the new head alone."),
        ("--adapter", None, "lora or dora: with --from, train small updates of the matrices; see "
         "--rank, --alpha, --adapter-targets, --adapter-dropout."),
    ),
    "The model": (
        ("--from", None, "Begin with the weights of a run or checkpoint."),
        ("--layers", "model.layers", "Number of layers."),
        ("--width", "model.width", "Width of the hidden states."),
        ("--heads", "model.heads", "Attention heads in a layer."),
        ("--length", "model.length", "Context: the most tokens that it sees at once."),
    ),
    "The run": (
        ("--out", None, "The run's folder (runs/PRESET-DATA)."),
        ("--resume", None, "Go on where the run in --out stands."),
        ("--config", None, "Repeat a run from its config.json."),
        ("--fit", None, "Memory that the run may take, such as 4GB."),
        ("--processes", None, "Processes on this machine that share each batch."),
        ("--log", None, "tensorboard or wandb: also write the metrics for them."),
    ),
}  # fmt: skip


def usual_help(default: Any) -> Iterator[str]:
    """The lines of the help, with the values of this preset."""
    width = text_width()
    yield "usage: clearformer train [PRESET] --data FILE [OPTIONS]"
    yield ""
    about = (
        "Train a model on a text, a table of labelled texts, or pairs. Ctrl-C saves, --resume goes "
        f"on. PRESET is {default.preset} here; clearformer describe lists all of them."
    )
    yield from textwrap.wrap(about, width)
    flags = [flag for group in USUAL_SETTINGS.values() for flag, _, _ in group]
    column = max(map(len, flags)) + 4
    for group, settings in USUAL_SETTINGS.items():
        yield ""
        yield f"{group}:"
        for flag, path, sentence in settings:
            text = f"{sentence}{_default(default, path)}"
            lines = textwrap.wrap(text, max(20, width - column))
            yield f"  {flag:{column - 2}}{lines[0]}"
            yield from (" " * column + line for line in lines[1:])
    yield ""
    rest = (
        f"clearformer train {default.preset} --help-all lists every setting: tables (--encoding, "
        f"--delimiter, --unlabelled, --empty, --rare, --normalize-labels, --duplicates), "
        f"optimizer, schedule, precision, tokenizer, positions and more. Any setting may be given "
        f"by its path (--train.learning-rate) or by the end of it."
    )
    yield from textwrap.wrap(rest, width)


def _default(default: Any, path: str | None) -> str:
    if path is None:
        return ""
    try:
        value = at(default, path)
    except AttributeError:
        return ""
    return "" if value is None else f" Default: {value}."
