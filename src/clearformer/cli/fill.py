"""`clearformer fill RUN "the movie was [MASK]"`: what may stand where a word is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Fill:
    """Guess the hidden words of a text with a masked model."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), or one of its checkpoints."""
    text: tyro.conf.Positional[str]
    """A text with [MASK] in the place of each word to guess."""
    top: int = 5
    """How many candidates to show for each."""

    def run(self) -> None:
        from clearformer.cli.shown import note
        from clearformer.generate.fill import fill
        from clearformer.train.folder import open_run

        opened = open_run(self.run_folder)
        found = fill(opened.model, opened.config.model, opened.tokenizer, self.text, self.top)
        note(opened.note)
        for number, candidates in enumerate(found, start=1):
            if len(found) > 1:
                print(f"[MASK] {number}")
            for each in candidates:
                print(f"{each.probability:7.4f}  {each.piece}")
