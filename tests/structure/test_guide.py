"""The documentation runs: every command and every Python block of the user guide.

Commands run in this process, in the order of the page, with smaller models and fewer steps. Of a
block after `<!-- not run: why -->`, and of pages outside the guide, only the flags are checked.
"""

import contextlib
import functools
import io
import json
import random
import re
import shlex
from pathlib import Path

import pytest
import torch

from clearformer.cli.main import main, parse

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDE = [
    ROOT / "README.md",
    DOCS / "start.md",
    DOCS / "sequence-to-sequence.md",
    DOCS / "compress.md",
    *sorted((DOCS / "guide").glob("*.md")),
]
PAGES = sorted({*GUIDE, *DOCS.glob("*.md")} - {DOCS / "log.md"})
BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n)?```(sh|python)\n(.*?)```", re.DOTALL)
QUICKLY = (
    "steps=2, batch_size=2, evaluations=1, compile='off', threads=1, quiet=True, "
    "layers=3, width=16, heads=2, **{'model.hidden': 32}"
)
FEW = "--steps 2 --evaluations 1 --compile off --threads 1"
SMALL = "--model.layers 1 --model.width 16 --model.heads 2 --model.hidden 32"
WORDS = "the cat sat on a mat and the king was in love once upon a time"


def blocks(page):
    """(is it run?, language, text) of each block of shell commands or Python."""
    return [(not skipped, *rest) for skipped, *rest in BLOCK.findall(page.read_text())]


def commands(text):
    """The words of each `clearformer` command, without comments and what a shell redirects."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["clearformer"]:
            found.append(words[1 : words.index(">") if ">" in words else None])
    return found


def smaller(words):
    """The same command with two steps and, unless it begins with a trained model, a small one."""
    if words[0] != "train":
        return words
    text = re.sub(r" --(minutes|epochs|steps|model\.layers) \S+", "", shlex.join(words))
    if "--from" in words:
        return shlex.split(f"{text} {FEW} --batch-size 2")
    if words[1].startswith("original"):  # counts a batch in tokens, and has two stacks
        return shlex.split(f"{text} {FEW} {SMALL.removeprefix('--model.layers 1 ')}")
    return shlex.split(f"{text} {FEW} {SMALL} --batch-size 2")


def run(words):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(words)
        except SystemExit as leaving:
            code = leaving.code
        else:
            code = 0
    assert not code, f"clearformer {shlex.join(words)}: {said.getvalue()}"
    return said.getvalue()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the pages name."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(0)
    lines = [" ".join(draw.choices(WORDS.split(), k=9)).capitalize() + "." for _ in range(400)]
    Path("my.txt").write_text("\n".join(lines))
    Path("more.txt").write_text("\n".join(lines[::2]))
    Path("prompts.txt").write_text("Once\nThe king\n")
    kinds = [("lovely", "good"), ("dull", "bad")] * 20
    rows = [f"a {word} film {row},{label}" for row, (word, label) in enumerate(kinds)]
    Path("reviews.csv").write_text("\n".join(["review,verdict", *rows]))
    pairs = [f"it rains {row},the street is {wet},{wet}" for row, (wet, _) in enumerate(kinds)]
    Path("pairs.csv").write_text("\n".join(["premise,hypothesis,label", *pairs]))
    kept = ("billing", "login", "urgent")
    sets = [[name for place, name in enumerate(kept) if row >> place & 1] for row in range(40)]
    tickets = [f"ticket {row} {' '.join(each)},{';'.join(each)}" for row, each in enumerate(sets)]
    Path("tickets.csv").write_text("\n".join(["text,label", *tickets]))
    ones = [f"ticket {r},{','.join(str(int(n in e)) for n in kept)}" for r, e in enumerate(sets)]
    Path("flags.csv").write_text("\n".join(["text,billing,login,urgent", *ones]))
    flats = [
        f"flat {row} {'garden' * (row % 2)},{100 + 50 * (row % 2) + row}.5" for row in range(40)
    ]
    Path("flats.csv").write_text("\n".join(["text,price", *flats]))
    names = [f"Mary B-PER\nlives O\nin O\nRome{row} B-LOC\n" for row in range(20)]
    Path("names.conll").write_text("\n".join(names))
    asked = [
        {"question": "Who?", "context": f"The king {row}", "answer": "king"} for row in range(20)
    ]
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, asked)))
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_guide_page_runs_in_order(page, folder):
    names = {}
    for is_run, language, text in blocks(page):
        if is_run and language == "python":
            shorter = text.replace("range(8000)", "range(60)")  # as much data as two steps need
            shorter = shorter.replace("minutes=10", QUICKLY)
            exec(compile(shorter, page.name, "exec"), names)
        elif is_run:
            for words in commands(text):
                run(smaller(words))


@functools.cache
def flags(command):
    """The flags that the help of a command names."""
    return set(re.findall(r"(?<![\w-])--[a-z][\w.-]*", run([command, "--help"])))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_flag_in_the_documentation_exists(page):
    for is_run, language, text in blocks(page):
        for command, *words in commands(text) if language == "sh" else []:
            if is_run and page in GUIDE:
                continue
            if command not in {"train", "plan"}:
                used = {word for word in words if word.startswith("--")}
                assert used <= flags(command), f"clearformer {command} {shlex.join(words)}"
            elif "--from" not in words and words[0] != "runs/mine":
                parse([command, *words])  # the flags depend on the preset, or on a run
