"""`clearformer embed RUN "a text" "another"`: a vector for each text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from clearformer.cli.inputs import given_table, tell_cut
from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import say, write_json
from clearformer.cli.tables import require_place

if TYPE_CHECKING:
    from torch import Tensor

SHOWN = 12  # texts whose similarities fit on a screen


@dataclass(frozen=True)
class Embed(ModelCommand):
    """Compute a vector for each text: the last hidden states of its tokens, pooled."""

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to embed; - or none: the lines that are piped in."""
    file: Path | None = None
    """A .csv, .tsv, .jsonl or .json table, or a text file with a text on each line."""
    text: str = "text"
    """Column of the texts, in a table."""
    pool: Literal["mean", "max", "first"] = "mean"
    """How tokens become one vector: their mean, their largest values, or the first token."""
    normalize: bool = True
    """Give vectors of length one."""
    batch_size: int = 32
    """Texts at a time."""
    out: Path | None = None
    """Write the vectors here: .npy, or .jsonl or .json with the texts; none: to the terminal."""
    json: bool = False
    """Print every text and its vector as a line of JSON."""

    def run(self) -> None:
        import numpy as np

        from clearformer.data import write_table
        from clearformer.data.write_tables import require_extension

        if self.out is not None:
            require_extension(self.out, (".npy", ".jsonl", ".json"))
        if self.json and self.out is not None:
            raise ValueError("give either --json or --out, and not both")
        require_place(self.out, self.file)
        model = self.load()
        texts = given_table(self.texts, self.file, self.text).texts
        embedded = model.embeddings(
            texts, pool=self.pool, normalize=self.normalize, batch_size=self.batch_size
        )
        vectors = embedded.vectors
        tell_cut(embedded.cut, len(texts), model.config.length)
        found: list[dict[str, object]] = [
            {"text": text, "embedding": [round(x, 7) for x in row]}
            for text, row in zip(texts, vectors.tolist(), strict=True)
        ]
        if self.json:
            for each in found:
                write_json(each)
        elif self.out is None:
            _show(texts, vectors)
        else:
            if self.out.suffix.lower() == ".npy":
                with self.out.open("wb") as file:  # numpy would add an ending to X.NPY
                    np.save(file, vectors.numpy())
            else:
                write_table(self.out, found)
            say(f"{len(texts):,} vectors of {vectors.shape[1]}: {self.out}")


def _show(texts: tuple[str, ...], vectors: Tensor) -> None:
    import torch.nn.functional as F

    for number, (text, vector) in enumerate(zip(texts, vectors, strict=True), start=1):
        shown = text if len(text) <= 50 else f"{text[:49]}…"
        numbers = " ".join(f"{x:+.3f}" for x in vector[:6].tolist())
        say(f"{number:3}  {numbers} …  {shown!r}")
    if 2 <= len(texts) <= SHOWN:
        directions = F.normalize(vectors, dim=-1)
        say()
        say("cosine similarity:")
        for number, row in enumerate((directions @ directions.T).tolist(), start=1):
            say(f"{number:3}  " + " ".join(f"{x:+.2f}" for x in row))
