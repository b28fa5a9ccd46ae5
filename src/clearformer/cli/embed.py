"""`clearformer embed RUN "a text" "another"`: a vector for each text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from clearformer.cli.classify import table_of
from clearformer.cli.show import require_place

if TYPE_CHECKING:
    from torch import Tensor

SHOWN = 12  # texts whose likeness fits on a screen


@dataclass(frozen=True)
class Embed:
    """Give a vector for each text: the last hidden states of its tokens, pooled."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), an imported one, or a checkpoint."""
    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to embed."""
    file: Path | None = None
    """A .csv, .tsv or .jsonl table, or a text file with a text on each line."""
    text: str = "text"
    """Column of the texts, in a table."""
    pool: Literal["mean", "max", "first"] = "mean"
    """How tokens become one vector: their mean, their largest values, or the first token."""
    normalised: bool = True
    """Give vectors of length one."""
    out: Path | None = None
    """Write the vectors here: .npy, or .jsonl with the texts; none: to the terminal."""
    json: bool = False
    """Say every text and its vector as a line of JSON."""

    def run(self) -> None:
        import numpy as np

        from clearformer.cli.shown import note
        from clearformer.explore.embed import embed, too_long
        from clearformer.train.folder import open_run

        if bool(self.texts) == (self.file is not None):
            raise ValueError("give either texts or --file, and not both")
        if self.out is not None and self.out.suffix not in (".npy", ".jsonl"):
            raise ValueError(f"{self.out} must end in .npy or .jsonl")
        if self.json and self.out is not None:
            raise ValueError("give either --json or --out, and not both")
        require_place(self.out, self.file)
        texts = table_of(self.texts, self.file, self.text).texts
        opened = open_run(self.run_folder)
        length = opened.config.model.length
        vectors = embed(
            opened.model,
            opened.tokenizer,
            texts,
            length=length,
            pool=self.pool,
            normalised=self.normalised,
        )
        note(opened.note)
        lines = (
            json.dumps({"text": text, "embedding": [round(x, 7) for x in row]}, ensure_ascii=False)
            for text, row in zip(texts, vectors.tolist(), strict=True)
        )
        if self.json:
            print("\n".join(lines))
            return
        if self.out is not None:
            if self.out.suffix == ".npy":
                np.save(self.out, vectors.numpy())
            else:
                self.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
            print(f"{len(texts):,} vectors of {vectors.shape[1]}: {self.out}")
        else:
            _show(texts, vectors)
        if cut := too_long(opened.tokenizer, texts, length):
            print(f"note: {cut:,} texts are longer than {length} tokens and were cut")


def _show(texts: tuple[str, ...], vectors: Tensor) -> None:
    import torch.nn.functional as F

    for number, (text, vector) in enumerate(zip(texts, vectors, strict=True), start=1):
        shown = text if len(text) <= 50 else f"{text[:49]}…"
        numbers = " ".join(f"{x:+.3f}" for x in vector[:6].tolist())
        print(f"{number:3}  {numbers} …  {shown!r}")
    if 2 <= len(texts) <= SHOWN:
        directions = F.normalize(vectors, dim=-1)
        print("\nlikeness (cosine):")
        for number, row in enumerate((directions @ directions.T).tolist(), start=1):
            print(f"{number:3}  " + " ".join(f"{x:+.2f}" for x in row))
