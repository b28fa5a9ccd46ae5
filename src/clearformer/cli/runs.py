"""`clearformer runs`: the runs in a folder, with their figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from clearformer.cli.output import say, write_json


@dataclass(frozen=True)
class Runs:
    """List runs with their data, steps and figures."""

    folder: tyro.conf.Positional[Path] = Path("runs")
    """The folder that holds runs."""
    sort: str | None = None
    """Sort by a figure, such as accuracy or loss, the best first; none: by path."""
    json: bool = False
    """Print every run as a line of JSON."""

    def run(self) -> None:
        from clearformer.runs.listing import find_runs
        from clearformer.runs.progress import clock

        if not self.folder.is_dir():
            raise ValueError(f"there is no folder {self.folder}: name the one with your runs")
        found = find_runs(self.folder)
        if self.sort is not None:
            known = dict.fromkeys(name for each in found for name in each.figures)
            if self.sort not in known:
                raise ValueError(
                    f"--sort is {self.sort!r}, but the figures are {', '.join(known) or 'none'}"
                )
            sign = -1 if self.sort in LARGER_IS_BETTER else 1
            worst = float("inf")
            found.sort(key=lambda each: sign * each.figures.get(self.sort or "", sign * worst))
        if self.json:
            for each in found:
                write_json(each.document())
            return
        if not found:
            say(
                f"{self.folder} holds no runs: clearformer train --out {self.folder}/mine makes one"
            )
        width = max((len(str(each.folder)) for each in found), default=0)
        for each in found:
            if each.problem:
                say(f"{each.folder!s:{width}}  cannot be read: {each.problem}")
                continue
            shown = [f"{name} {value:.4f}" for name, value in each.figures.items()
                     if name != "standard_error"]  # fmt: skip
            what = "" if each.config is None else _what(each.config.model.name, each.config.data)
            say(
                f"{each.folder!s:{width}}  {what}, step {each.step:,} ({each.status}), "
                f"{clock(each.seconds)}, {', '.join(shown) or 'not evaluated'}"
            )


LARGER_IS_BETTER = ("accuracy", "macro_f1", "bleu")


def _what(model: str, data: object) -> str:
    source = str(getattr(data, "source", ""))
    return f"{model} on {Path(source).name or source}"
