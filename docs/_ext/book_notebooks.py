"""Chapters of docs/book as notebooks: one file beside each built page, and a link to it."""

from pathlib import Path
from typing import TYPE_CHECKING

import jupytext
import nbformat

if TYPE_CHECKING:
    from sphinx.application import Sphinx

BOOK = Path(__file__).parents[1] / "book"


def chapters() -> list[Path]:
    """The chapters, in their order."""
    return sorted(BOOK.glob("[0-9]*-*.md"), key=lambda path: int(path.stem.split("-")[0]))


def notebook(path: Path) -> nbformat.NotebookNode:
    """A chapter as a notebook without outputs."""
    found = jupytext.read(path, fmt="md:myst")
    found.metadata = {"kernelspec": found.metadata["kernelspec"]}
    for place, cell in enumerate(found.cells):
        cell.id = f"{path.stem}-{place}"
    return found


def add_link(app: "Sphinx", pagename: str, templatename: str, context: dict, doctree) -> None:
    stem = pagename.removeprefix("book/")
    if pagename.startswith("book/") and (BOOK / f"{stem}.md") in chapters():
        link = f'<p><a href="{stem}.ipynb" download>Download this chapter as a notebook</a></p>'
        context["body"] = context["body"].replace("</h1>", f"</h1>\n{link}", 1)


def write(app: "Sphinx", problem: Exception | None) -> None:
    if problem is None and app.builder.name == "html":
        for path in chapters():
            text = nbformat.writes(notebook(path))
            (Path(app.outdir) / "book" / f"{path.stem}.ipynb").write_text(text, encoding="utf-8")


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("html-page-context", add_link)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
