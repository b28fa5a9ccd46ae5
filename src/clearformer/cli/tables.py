"""Tables, trees and numbers in a terminal, drawn by rich."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from clearformer.escape import escape_line
from clearformer.rich_console import Part, plain
from clearformer.rich_console import Terminal as Terminal

if TYPE_CHECKING:
    from torch import Tensor


class Branch:
    """A node of a tree: a label and its children."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @staticmethod
    def root(*parts: Part) -> Branch:
        return Branch(Tree(plain(*parts)))

    def add(self, *parts: Part) -> Branch:
        return Branch(self.tree.add(plain(*parts)))


def require_place(path: Path | None, source: Path | None = None) -> None:
    """Raise ValueError if a file cannot be written there, before any work is done."""
    if path is not None and not path.parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {path.parent}, make it")
    if path is not None and path.is_dir():
        raise ValueError(f"{path} cannot be written: it is a folder")
    if path is not None and source is not None and path.resolve() == source.resolve():
        raise ValueError(f"--out {path} would write over --file: choose another")


def number(value: Tensor | float) -> str:
    value = float(value)
    return "−∞" if value == float("-inf") else f"{value:.2f}".replace("-", "−")


def numbers(vector: Tensor, most: int = 6) -> str:
    """A vector in brackets; a long one is truncated."""
    shown = [f"{number(value):>5}" for value in vector[:most]]
    return f"({', '.join(shown)}{', …' if len(vector) > most else ''})"


def numbers_table(
    columns: Sequence[str],
    rows: Sequence[tuple[str, Tensor]],
    width: int,
    *,
    total: str | None = None,
    shade: bool = False,
) -> Table:
    """A table of numbers; columns that do not fit are omitted, with a caption."""
    columns = [escape_line(name) for name in columns]
    rows = [(escape_line(name), values) for name, values in rows]
    cell = max(6, *(len(name) for name in columns)) + 2
    label = max(len(name) for name, _ in rows) + 2
    room = max(1, (width - label - 8) // cell)
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("", no_wrap=True)
    for name in columns[:room]:
        table.add_column(Text(name), justify="right", no_wrap=True)
    if total is not None:
        table.add_column(total, justify="right", no_wrap=True)
    for name, values in rows:
        cells = [Text(number(v), style=_shade(float(v)) if shade else "") for v in values[:room]]
        if total is not None:
            cells.append(Text(f"{float(values.sum()):.3f}"))
        table.add_row(Text(name), *cells)
    if room < len(columns):
        table.caption = f"the first {room} of {len(columns)} words; a wider terminal shows more"
        table.caption_justify = "left"
    return table


def require_picture(path: Path | None) -> None:
    """Raise ValueError for a picture that could not be written, before any work is done."""
    if path is None:
        return
    known = (".png", ".svg", ".pdf")
    if path.suffix not in known:
        raise ValueError(f"the picture {str(path)!r} must end in one of {', '.join(known)}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {path.absolute().parent} to write {path.name} into")


def byte_count(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _shade(weight: float) -> str:
    """A darker blue for a larger weight, with readable text."""
    strength = min(max(weight, 0.0), 1.0)
    white, blue = (235, 243, 255), (30, 80, 180)
    mixed = (round(w + (b - w) * strength) for w, b in zip(white, blue, strict=True))
    return f"{'white' if strength > 0.5 else 'black'} on rgb({','.join(map(str, mixed))})"
