"""`clearformer fill RUN "the movie was [MASK]"`: predicts masked words."""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from clearformer.cli.inputs import given_table
from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import say, write_json


@dataclass(frozen=True)
class Fill(ModelCommand):
    """Predict the masked words of texts with a masked model."""

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts with [MASK] in the place of each word to predict; - or none: the lines that are piped
    in."""
    top_k: int = 5
    """Number of candidates to show for each."""
    json: bool = False
    """Print every text as a line of JSON."""

    def run(self) -> None:
        model = self.load()
        model.config.require_verb("fill", self.run_folder)
        texts = given_table(self.texts, None, "text").texts
        for text in texts:
            found = model.fill(text, top_k=self.top_k)
            if self.json:
                masks = [
                    [{"text": each.piece, "probability": each.probability} for each in candidates]
                    for candidates in found
                ]
                write_json({"text": text, "masks": masks})
                continue
            if len(texts) > 1:
                say(text)
            for number, candidates in enumerate(found, start=1):
                if len(found) > 1:
                    say(f"[MASK] {number}")
                for each in candidates:
                    say(f"{each.probability:7.4f}  {each.piece}")
