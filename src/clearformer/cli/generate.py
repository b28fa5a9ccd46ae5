"""`clearformer generate RUN "Once upon"`: continue a text, token by token."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Generate:
    """Continue a text with a trained generator."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), or one of its checkpoints."""
    prompt: tyro.conf.Positional[str] = "\n"
    """The text to continue."""
    length: int = 500
    """How many tokens to add."""
    temperature: float = 0.8
    """Above 1 more daring, below 1 more careful, 0 always the most likely."""
    top_k: int | None = None
    """Choose among so many tokens only."""
    top_p: float | None = None
    """Choose among the fewest tokens that have this probability together."""
    seed: int = 0
    """The same seed gives the same text."""

    def run(self) -> None:
        from clearformer.config import NextToken
        from clearformer.generate.choose import Sampling
        from clearformer.generate.stream import stream
        from clearformer.train.folder import open_run

        if self.length < 1:
            raise ValueError(f"length is {self.length}, but it must be at least 1")
        how = Sampling(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        opened = open_run(self.run_folder)
        model = opened.config.model
        if not isinstance(model.head, NextToken):
            raise ValueError(f"{self.run_folder} is no generator: use clearformer classify")
        prompt = opened.tokenizer.encode(self.prompt).tolist()
        sys.stdout.write(self.prompt)
        shown = Shown(opened.tokenizer.decode)
        for token in stream(opened.model, model, prompt, how, most=self.length, seed=self.seed):
            sys.stdout.write(shown.more(token.id))
            sys.stdout.flush()
        sys.stdout.write(shown.rest() + "\n")


class Shown:
    """Text as it comes: a character whose bytes are not all there yet waits for them."""

    def __init__(self, decode: object) -> None:
        self.decode = decode
        self.ids: list[int] = []

    def more(self, token: int) -> str:
        self.ids.append(token)
        text: str = self.decode(self.ids)  # type: ignore[operator]
        # Four bytes at the most make a character; what is still broken then is broken.
        if text.endswith("�") and len(self.ids) < 8:
            return ""
        self.ids = []
        return text

    def rest(self) -> str:
        return self.decode(self.ids) if self.ids else ""  # type: ignore[operator]
