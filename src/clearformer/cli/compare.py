"""`clearformer compare A B`: the settings, figures and curves of two runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from clearformer.cli.output import say, write_json


@dataclass(frozen=True)
class Compare:
    """Show in which settings two runs differ, what both reached, and their validation curves."""

    first: tyro.conf.Positional[Path]
    """A run (what --out named)."""
    second: tyro.conf.Positional[Path]
    """Another run."""
    json: bool = False
    """Print the comparison as one line of JSON."""

    def run(self) -> None:
        from clearformer.runs.listing import compare_runs, sparkline

        found = compare_runs(self.first, self.second)
        if self.json:
            write_json(found.document())
            return
        say(f"first   {found.first.folder}: step {found.first.step:,} ({found.first.status})")
        say(f"second  {found.second.folder}: step {found.second.step:,} ({found.second.status})")
        rows = [(path, _shown(one), _shown(other)) for path, one, other in found.settings]
        _table("settings that differ", rows or [("none", "", "")])
        figures = [
            (name.replace("_", " "), _number(one), _number(other))
            for name, one, other in found.figures
        ]
        _table("last validation", figures or [("not evaluated", "", "")])
        for name, each in (("first", found.first), ("second", found.second)):
            losses = [loss for _, loss in each.losses]
            if losses:
                say(f"validation loss, {name:6}  {sparkline(losses)}  {losses[0]:.4f} to "
                    f"{losses[-1]:.4f}, lowest {min(losses):.4f}")  # fmt: skip


def _table(title: str, rows: list[tuple[str, str, str]]) -> None:
    say()
    widths = [max(len(row[column]) for row in [(title, "first", ""), *rows]) for column in (0, 1)]
    say(f"{title:{widths[0]}}  {'first':{widths[1]}}  second")
    for name, one, other in rows:
        say(f"{name:{widths[0]}}  {one:{widths[1]}}  {other}".rstrip())


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"…{text[-39:]}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
