"""Command reference: what `clearformer COMMAND --help` prints, made when the site is built."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = Path(__file__).parents[1] / "reference" / "commands"
END = "\f"
# One process for all commands: importing the command line takes longer than printing its help.
SCRIPT = f"""
import contextlib, sys
from clearformer.cli.main import main
for command in sys.argv[1:]:
    with contextlib.suppress(SystemExit):
        main([*command.split(), "--help-all" if command == "train" else "--help"])
    print({END!r})
"""


def help_texts(*commands: str) -> list[str]:
    environment = {**os.environ, "COLUMNS": "88", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *commands],
        env=environment, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    texts = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).split(END)[:-1]
    return [text.strip() for text in texts]


def commands() -> list[str]:
    """Every command, in the order of `clearformer --help`."""
    from clearformer.cli.main import VERBS

    return list(VERBS)


def description(text: str) -> str:
    """The paragraph between the usage line and the first box, as Markdown."""
    words = " ".join(text.split("╭")[0].split("\n\n", 1)[1].split())
    return re.sub(r"(?<![\w`-])(--[\w-]+)(?!`)", r"`\1`", words)  # a flag, not a dash


def page(command: str, text: str) -> str:
    return f"# clearformer {command}\n\n{description(text)}\n\n```text\n{text}\n```\n"


def index(texts: dict[str, str]) -> str:
    rows = "\n".join(
        f"| [`{name}`]({name}.md) | {description(text)} |" for name, text in texts.items()
    )
    return (
        "# Commands\n\nEach page is the output of `clearformer COMMAND --help` (`train`: "
        "`--help-all`). The flags of `train` and `plan` depend on the preset: `clearformer train "
        "bert-mini --help-all` shows those of `bert-mini`.\n\n"
        f"| | |\n|---|---|\n{rows}\n\n```{{toctree}}\n:hidden:\n\n" + "\n".join(texts) + "\n```\n"
    )


def generate(app: "Sphinx") -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    names = commands()
    texts = dict(zip(names, help_texts(*names), strict=True))
    for name, text in texts.items():
        (FOLDER / f"{name}.md").write_text(page(name, text), encoding="utf-8")
    (FOLDER / "index.md").write_text(index(texts), encoding="utf-8")


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True}
