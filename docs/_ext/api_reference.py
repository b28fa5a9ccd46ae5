"""API reference: one generated page for each package, made when the site is built.

The list of modules is read from the source tree, so a module that is renamed, moved or added needs
no change here. Docstrings are plain text with `code` in single backticks; they are escaped before
Sphinx reads them as reStructuredText.
"""

import ast
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

SOURCE = Path(__file__).parents[2] / "src" / "clearformer"
FOLDER = Path(__file__).parents[1] / "reference" / "api"
# Packages without an interface for Python, apart from the modules of theirs named in PUBLIC.
INTERNAL = {
    *("cli", "selftest", "explore"),
    *("did_you_mean", "escape", "limits", "safe_files", "safe_json", "arguments", "moved"),
    *("console", "rich_console"),
    *("model", "run_training"),  # the page of `clearformer` has what they define
}
PUBLIC = {"explore/trace", "explore/notebook", "explore/embed", "explore/figures"}
SECTION = re.compile(r"(Args|Returns|Raises|Yields|Examples?|Attributes):$")
ITEM = re.compile(r"( +\*{0,2}\w+(?: \([^()]*(?:\([^()]*\)[^()]*)*\))?: )(.*)")


def summary(path: Path) -> str:
    """The first sentence of a module's docstring, without importing the module."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def reading_order(package: Path) -> list[Path]:
    """A package's modules: first in the order in which its docstring names them, then by name."""
    words = re.findall(
        r"\w+", ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    )
    modules = sorted(path for path in package.glob("*.py") if not path.stem.startswith("_"))
    named = [word for word in dict.fromkeys(words) if (package / f"{word}.py") in modules]
    return sorted(modules, key=lambda path: named.index(path.stem) if path.stem in named else 1000)


def is_public(path: Path) -> bool:
    name = path.relative_to(SOURCE).with_suffix("").as_posix()
    internal = name.split("/")[0] in INTERNAL or path.stem.startswith("_")
    return name in PUBLIC or not internal


def pages() -> dict[str, list[Path]]:
    """Page name -> the files that it documents: single modules first, then packages."""
    single = [path for path in sorted(SOURCE.glob("*.py")) if is_public(path)]
    found = {"clearformer": [SOURCE / "__init__.py"]}
    found |= {f"clearformer.{path.stem}": [path] for path in single}
    for init in sorted(SOURCE.glob("*/__init__.py")):
        modules = [path for path in reading_order(init.parent) if is_public(path)]
        if modules:
            found[f"clearformer.{init.parent.name}"] = [init, *modules]
    return found


def module_name(path: Path) -> str:
    return ".".join(["clearformer", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(
        ".__init__"
    )


def page(name: str, files: list[Path]) -> str:
    title = f"``{name}``"
    parts = [title, "=" * len(title), ""]
    for path in files:
        module = module_name(path)
        if module != name:
            parts += [f"``{module}``", "-" * (len(module) + 4), ""]
        parts += [f".. automodule:: {module}", "   :members:", "   :show-inheritance:"]
        # What a package re-exports is documented where it is defined; the front door lists its own,
        # with the methods that Model has from its base classes.
        front_door = module == "clearformer"
        parts += ["   :inherited-members:" if front_door else "   :ignore-module-all:", ""]
    return "\n".join(parts)


def index(found: dict[str, list[Path]]) -> str:
    rows = [
        f"   * - :doc:`{name} <{name}>`\n     - {escape(summary(files[0]))}"
        for name, files in found.items()
    ]
    listed = "\n".join(f"   {name}" for name in found)
    return (
        "Python\n======\n\n"
        "Every module that is meant to be imported, from its docstrings. The command line's own "
        "modules are left out: :doc:`../commands/index` describes the commands.\n\n"
        f".. list-table::\n   :widths: 30 70\n\n{chr(10).join(rows)}\n\n"
        f".. toctree::\n   :hidden:\n\n{listed}\n"
    )


def escape(line: str) -> str:
    """A line of plain text as reStructuredText: `code` and *emphasis* stay, all else is literal."""
    spans = re.split(r"(`+[^`]+`+|(?<![\w*])\*\w[\w ]*\*(?![\w*]))", line)
    return "".join(
        re.sub(r"([*_|\\`])", r"\\\1", part) if index % 2 == 0
        else part if part.startswith("*")
        else f"``{part.strip('`')}``"
        for index, part in enumerate(spans)
    )  # fmt: skip


def escape_docstring(app, what, name, obj, options, lines) -> None:
    """Replace `lines` by markup that shows the docstring as it was written."""
    chunks = [[""]]
    for line in lines:
        is_inside = SECTION.match(chunks[-1][0]) and (not line or line.startswith(" "))
        if SECTION.match(line) or (SECTION.match(chunks[-1][0]) and not is_inside):
            chunks.append([])
        chunks[-1].append(line)
    lines[:] = [
        line
        for chunk in chunks
        for line in (section(chunk) if SECTION.match(chunk[0]) else plain(chunk))
    ]


def plain(rows: list[str]) -> list[str]:
    text = "\n".join(rows).strip("\n")
    return [line for each in re.split(r"\n{2,}", text) if each for line in [*paragraph(each), ""]]


def section(rows: list[str]) -> list[str]:
    """A section that sphinx.ext.napoleon reads: its examples stay code, its text is escaped."""
    header, *body = rows
    if header.startswith("Example"):
        code = "\n".join(body).strip("\n").split("\n")
        if not code[0].strip().startswith(">>>"):
            code = ["    ::", "", *(f"    {row}" if row else "" for row in code)]
        return [header, *code, ""]
    items = [ITEM.fullmatch(row) if header != "Returns:" else None for row in body]
    return [
        header,
        *(item[1] + escape(item[2]) if item else escape(row)
          for row, item in zip(body, items, strict=True)),
        "",
    ]  # fmt: skip


def paragraph(text: str) -> list[str]:
    rows = text.split("\n")
    if text.startswith(">>>"):
        return rows
    if all(row.startswith(" ") for row in rows):
        return ["::", "", *(f"    {row}" for row in rows)]
    if any(row.startswith("  ") for row in rows) and not text.startswith(("- ", "* ", "1. ")):
        # A table or a picture made of aligned text.
        return [f"| {escape(row.strip())}" if row.strip() else "|" for row in rows]
    text = "\n".join(escape(row) for row in rows)
    return re.sub(r"^\\\* ", "- ", text, flags=re.MULTILINE).split("\n")


def generate(app: "Sphinx") -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    found = pages()
    for name, files in found.items():
        (FOLDER / f"{name}.rst").write_text(page(name, files), encoding="utf-8")
    (FOLDER / "index.rst").write_text(index(found), encoding="utf-8")


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("builder-inited", generate)
    app.connect("autodoc-process-docstring", escape_docstring, priority=400)  # before napoleon
    return {"parallel_read_safe": True}
