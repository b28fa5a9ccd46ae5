"""The documentation runs: every command and every Python block of the user guide.

Commands run in this process, in the order of the page, with smaller models and fewer steps. A block after
`<!-- not run: why -->` is only parsed, as are the commands of the other pages.
"""

import contextlib
import io
import random
import re
import shlex
from pathlib import Path

import pytest
import torch

from clearformer.cli.main import main, parse

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    DOCS / "start.md",
    *sorted((DOCS / "guide").glob("*.md")),
    DOCS / "sequence-to-sequence.md",
]
BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n)?```(sh|python)\n(.*?)```", re.DOTALL)
FEW = "--steps 2 --evaluations 1 --compile off --threads 1"
SMALL = "--batch 2 --model.layers 1 --model.width 16 --model.heads 2 --model.hidden 32"
SMALL_PAIRS = "--model.width 16 --model.heads 2 --model.hidden 32"
# Data of the page itself, made smaller.
SHORTER = {"range(8000)": "range(60)"}


def blocks(page):
    """(is it run?, language, text) of each block of shell commands or Python."""
    return [(not skipped, *rest) for skipped, *rest in BLOCK.findall(page.read_text())]


def commands(text):
    """The words of each `clearformer` command, without continuations and comments."""
    lines = text.replace("\\\n", " ").splitlines()
    return [
        words[1:]
        for line in lines
        if (words := shlex.split(line, comments=True))[:1] == ["clearformer"]
    ]


def smaller(words):
    """The same command with few steps and, if it does not begin with a trained model, a small one."""
    if words[0] != "train":
        return words
    text = re.sub(r" --(minutes|epochs|steps) \S+", "", shlex.join(words))
    if "--model.layers" in text:
        text = re.sub(r" --model\.layers \S+", "", text)
    few = FEW + (" --batch 2" if "original" not in text and "--from" in text else "")
    if "--from" in text:
        return shlex.split(f"{text} {few}")
    return shlex.split(f"{text} {few} {SMALL_PAIRS if 'original' in text else SMALL}")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    words = "the cat sat on a mat and the king was in love once upon a time".split()
    draw = random.Random(0)
    text = "\n".join(" ".join(draw.choices(words, k=9)).capitalize() + "." for _ in range(400))
    Path("my.txt").write_text(text)
    Path("more.txt").write_text(text)
    Path("prompts.txt").write_text("Once\nThe king\n")
    rows = [
        f"a {'lovely' if row % 2 else 'dull'} film {row},{'good' if row % 2 else 'bad'}"
        for row in range(40)
    ]
    Path("reviews.csv").write_text("review,verdict\n" + "\n".join(rows))
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)


def run(words):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(words)
        except SystemExit as leaving:
            assert not leaving.code, f"clearformer {shlex.join(words)}: {said.getvalue()}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_their_order(page, folder):
    names = {}
    for is_run, language, text in blocks(page):
        if not is_run:
            continue
        if language == "python":
            for long, short in SHORTER.items():
                text = text.replace(long, short)
            exec(compile(text, page.name, "exec"), names)
        else:
            for words in commands(text):
                run(smaller(words))


def every_command():
    pages = [ROOT / "README.md", *DOCS.glob("*.md"), *(DOCS / "guide").glob("*.md")]
    found = {
        shlex.join(words)
        for page in pages
        for _, language, text in blocks(page)
        if language == "sh"
        for words in commands(text)
    }
    return sorted(found)


@pytest.mark.parametrize("command", every_command())
def test_every_command_in_the_documentation_has_known_flags(command, folder):
    words = [word for word in shlex.split(command) if word not in {">", "|"}]
    if "--from" in words:
        pytest.skip(
            "the flags of a fine-tuned run depend on the run; the pages of the guide run it"
        )
    try:
        parse(words)
    except SystemExit as leaving:
        assert not leaving.code, command
