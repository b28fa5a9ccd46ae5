"""`clearformer evaluate RUN`: the figures of a trained model, with their protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

if TYPE_CHECKING:
    from clearformer.train.folder import Opened


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained model on text or labelled texts that it has not seen."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), or one of its checkpoints."""
    data: str | None = None
    """A file or corpus; none: what the run held back."""
    part: str = "validation"
    """Which part of a corpus: validation or test."""
    context: int | None = None
    """Tokens that a prediction may use; none: the model's length."""
    stride: int | None = None
    """Tokens between two windows, smaller is slower and better; none: half the context."""
    memory: int | None = None
    """States that a Transformer-XL remembers, more than in training if you like; none: as many."""
    most: int = 1_000_000
    """Bytes of a text to score."""
    text: str = "text"
    """Column of the texts, in a table."""
    label: str = "label"
    """Column of the labels, in a table."""
    data_dir: Path | None = None
    """Where corpora lie; none: CLEARFORMER_DATA, then the cache, then a download."""

    def run(self) -> None:
        from clearformer.config import Classifier
        from clearformer.train.folder import open_run

        opened = open_run(self.run_folder)
        print(f"{opened.found.folder}: {opened.config.model.name}, step {opened.found.step}")
        if isinstance(opened.config.model.head, Classifier):
            self._labels(opened)
        else:
            self._text(opened)

    def _text(self, opened: Opened) -> None:
        import lzma

        from clearformer import data
        from clearformer.cli.train import places
        from clearformer.config import HiddenMemory
        from clearformer.train.evaluate import Compression, compress, compress_segments
        from clearformer.train.tasks import beginning, texts

        length, past = opened.config.model.length, opened.config.model.past
        if self.memory is not None and not isinstance(past, HiddenMemory):
            raise ValueError(
                f"--memory is {self.memory}, but {opened.config.model.name} has no memory: "
                f"leave it out, or train a Transformer-XL (clearformer train xl-small)"
            )
        for name in ("context", "stride", "memory"):
            value, least = getattr(self, name), 0 if name == "memory" else 1
            if value is not None and value < least:
                raise ValueError(f"--{name} is {value}, but it must be at least {least}")
        context = self.context or length
        stride = self.stride or max(1, context // 2)
        where = places(self.data_dir)
        if self.data is None and self.part == "validation":
            _, text = texts(opened.config.data, where, length)
        else:
            source = self.data or opened.config.data.source
            corpus = data.CORPORA.get(source)
            if corpus is None:
                text = data.open_text(source)
            elif isinstance(corpus, data.TextCorpus):
                text = corpus.read(self.part, where)
            else:
                raise ValueError(f"{source} is a table, but {self.run_folder} is a generator")
        text = beginning(text, self.most)
        cache = (where.cache or Path(".")) / "tokens"
        tokens = data.prepare(text, opened.tokenizer, cache)
        model = opened.config.model
        found: Compression
        if isinstance(model.past, HiddenMemory):
            if self.stride is not None:
                raise ValueError("--stride is for windows, but this model goes on: use --memory")
            found = compress_segments(
                opened.model,
                model,
                tokens,
                opened.tokenizer,
                segment=context,
                memory=self.memory,
            )
        else:
            found = compress(opened.model, tokens, opened.tokenizer, context, stride)
        packed = len(lzma.compress(text.read(), preset=9 | lzma.PRESET_EXTREME))
        print(f"bits per byte       {found.bits_per_byte:.4f}")
        print(f"bits per character  {found.bits_per_character:.4f}")
        print(f"loss per token      {found.loss:.4f}")
        print(f"xz -9e, beside it   {8 * packed / text.size:.4f} bits per byte")
        print(f"protocol: {found.protocol}")

    def _labels(self, opened: Opened) -> None:
        import torch

        from clearformer import data
        from clearformer.cli.train import places
        from clearformer.train.evaluate import predict, report
        from clearformer.train.tasks import tables

        where = places(self.data_dir)
        settings = replace(opened.config.data, text=self.text, label=self.label)
        if self.data is None and self.part == "validation":
            _, table = tables(opened.config.data, where, opened.config.train.seed)
        else:
            source = self.data or opened.config.data.source
            corpus = data.CORPORA.get(source)
            if corpus is None:
                table = data.read_table(source, settings.text, settings.label)
            elif isinstance(corpus, data.LabelledCorpus):
                table = corpus.read(self.part, where)
            else:
                raise ValueError(f"{source} has no labels, but {self.run_folder} is a classifier")
        head = opened.config.model.head
        names = head.names  # type: ignore[union-attr]
        assert names is not None
        rows = data.encode_rows(table, opened.tokenizer, names)
        guesses = predict(opened.model, rows, opened.config)
        found = report(guesses, torch.from_numpy(rows.labels), names)
        print(f"accuracy     {found.accuracy:.4f} on {len(rows):,} texts")
        print(f"loss         {found.loss:.4f}")
        print(f"calibration  {found.calibration:.4f} (mean gap of confidence and accuracy)\n")
        width = max(len(name) for name in (*names, "class"))
        print(f"{'class':{width}}   texts  precision  recall      F1")
        for name, count, precision, recall, f1 in found.by_class():
            print(f"{name:{width}} {count:7,}     {precision:.4f}  {recall:.4f}  {f1:.4f}")
        print("\nconfusion: a row for each true class, a column for each guess")
        cell = max(width, 7)
        print(" " * width + "".join(f" {name:>{cell}}" for name in names))
        for name, row in zip(names, found.confusion.tolist(), strict=True):
            print(f"{name:{width}}" + "".join(f" {count:>{cell},}" for count in row))
