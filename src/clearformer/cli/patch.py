"""`clearformer patch RUN CLEAN CORRUPTED --right A --wrong B`: where the answer is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import tyro

from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import say, write_json


@dataclass(frozen=True)
class Patch(ModelCommand):
    """Put values of a clean text into a corrupted one, and show which restore the answer."""

    clean: tyro.conf.Positional[str] = ""
    """The text whose values are put in."""
    corrupted: tyro.conf.Positional[str] = ""
    """The text that is read; as many tokens as the clean one."""
    right: str = ""
    """The token that the clean text predicts."""
    wrong: str | None = None
    """The token that the corrupted text predicts."""
    position: int = -1
    """The position of these logits; -1 is the last token."""
    by: Literal["position", "head"] = "position"
    """One point for each layer and token, or for each layer and head."""
    stage: str | None = None
    """What to put in, such as attn_out; none: resid_pre by position, head_out by head."""
    json: bool = False
    """Print everything as JSON."""

    def run(self) -> None:
        from clearformer.interpretability import patch

        if not self.clean or not self.corrupted:
            raise ValueError("two texts are needed: write the clean and the corrupted one")
        if not self.right:
            raise ValueError("--right is missing: name the token that the clean text predicts")
        found = patch(
            self.load(),
            self.clean,
            self.corrupted,
            right=self.right,
            wrong=self.wrong,
            position=self.position,
            by=self.by,
            stage=self.stage,
        )
        if self.json:
            write_json({"stage": found.stage, "by": found.by, "clean": found.clean,
                        "corrupted": found.corrupted, "tokens": found.tokens,
                        "values": found.values.tolist()})  # fmt: skip
            return
        from clearformer.cli.tables import Terminal, numbers_table

        say(f"logit difference: clean {found.clean:.4f}, corrupted {found.corrupted:.4f}")
        say(f"with {found.stage} of the clean text, by layer and {found.by}:")
        heads = [f"head {number}" for number in range(found.values.shape[1])]
        columns = found.tokens if found.by == "position" else heads
        rows = [(f"layer {layer}", row) for layer, row in enumerate(found.values)]
        terminal = Terminal()
        terminal.draw(numbers_table(columns, rows, terminal.width))
