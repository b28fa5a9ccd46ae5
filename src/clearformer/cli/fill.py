"""`clearformer fill RUN "the movie was [MASK]"`: what may stand where a word is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from clearformer.cli.inputs import given_table
from clearformer.cli.output import say


@dataclass(frozen=True)
class Fill:
    """Guess the hidden words of texts with a masked model."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), or one of its checkpoints."""
    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts with [MASK] in the place of each word to guess; - or none: the lines that are piped
    in."""
    top_k: int = 5
    """Number of candidates to show for each."""

    def run(self) -> None:
        from clearformer.cli.generated import note
        from clearformer.generate.fill import fill
        from clearformer.runs.load import open_run

        opened = open_run(self.run_folder, verb="fill")
        texts = given_table(self.texts, None, "text").texts
        note(opened.note)
        for text in texts:
            found = fill(opened.model, opened.config.model, opened.tokenizer, text, self.top_k)
            if len(texts) > 1:
                say(text)
            for number, candidates in enumerate(found, start=1):
                if len(found) > 1:
                    say(f"[MASK] {number}")
                for each in candidates:
                    say(f"{each.probability:7.4f}  {each.piece}")
