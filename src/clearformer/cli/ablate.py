"""`clearformer ablate RUN "The cat sat"`: which heads and MLPs a text needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import tyro

from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import say, write_json

if TYPE_CHECKING:
    from clearformer.interpretability import Ablation


@dataclass(frozen=True)
class Ablate(ModelCommand):
    """Switch off each head and each MLP in turn, and show how the loss of a text changes."""

    text: tyro.conf.Positional[str] = ""
    """What the model reads; for a translator the source."""
    right: str | None = None
    """Measure the logit of this token (or class) instead of the loss."""
    wrong: str | None = None
    """Minus the logit of this one."""
    position: int = -1
    """The position of these logits; -1 is the last token."""
    method: Literal["zero", "mean"] = "zero"
    """Replace by zero, or by the mean over the tokens of the text."""
    target: str | None = None
    """What the decoder of a translator reads; none: its own translation."""
    part: Literal["encoder", "decoder", "cross"] | None = None
    """Which attention of a translator; none: its encoder."""
    top: int = 20
    """Rows to show, the largest changes first."""
    json: bool = False
    """Print everything as JSON."""

    def run(self) -> None:
        from clearformer.interpretability import ablate

        if not self.text:
            raise ValueError('the text is missing: write it after the run, as in "The cat sat"')
        if self.top < 1:
            raise ValueError(f"`top` is {self.top}, but it must be at least 1")
        model = self.load()
        if "translate" in model.config.verbs:
            (best, *_), *_ = model.translations([self.text])
            target = best.text if self.target is None else self.target
            given: str | tuple[str, str] = (self.text, target)
        elif self.target is not None:
            raise ValueError("`target` is for translators, and this model has one stack")
        else:
            given = self.text
        found = ablate(
            model,
            given,
            right=self.right,
            wrong=self.wrong,
            position=self.position,
            method=self.method,
            part=self.part,
        )
        rows = found.rows()
        if self.json:
            write_json({"metric": found.metric, "baseline": found.baseline, "part": found.part,
                        "method": self.method, "rows": rows})  # fmt: skip
            return
        self._print(found, rows)

    def _print(self, found: Ablation, rows: list[dict[str, object]]) -> None:
        say(f"{found.metric} of the whole model: {found.baseline:.4f}")
        say(f"{'without':24}{found.metric:>18}{'change':>12}")
        for row in rows[: self.top]:
            head = "" if row["head"] is None else f", head {row['head']}"
            name = f"layer {row['layer']}{head}" + (" MLP" if row["head"] is None else "")
            say(f"{name:24}{row['value']:18.4f}{row['change']:+12.4f}")
        if len(rows) > self.top:
            say(f"{len(rows) - self.top} more with smaller changes: --top {len(rows)}")
