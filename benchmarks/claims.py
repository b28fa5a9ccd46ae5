"""The ledger of claims: claims of the first source document, tested in the chapters of docs/book.

    python benchmarks/claims.py                     run every chapter and write docs/claims.md
    python benchmarks/claims.py 3                   run chapter 3 and print its claims
    python benchmarks/claims.py --only "the average value"     try one claim and print it

Each claim is judged by a rule from the numbers that its chapter computes. Chapters that have run
are stored in benchmarks/results/claims.jsonl, so that a run that was stopped goes on; `--fresh`
begins again (after a change of the library, which is not noticed). Needs jupytext (the extra
`docs`). Times are those of the machine that runs it.
"""

import argparse
import contextlib
import functools
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import claims_basics
import claims_models
import claims_tasks
from claim import Claim, Names
from output_projection import RESULTS as OUTPUT_PROJECTION

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "claims.md"
STORE = Path(__file__).parent / "results" / "claims.jsonl"
RECORDED = (ROOT / "docs" / "results.md", OUTPUT_PROJECTION)  # what claims with a command quote

SETS = (claims_basics, claims_tasks, claims_models)
CLAIMS: tuple[Claim, ...] = tuple(claim for each in SETS for claim in each.CLAIMS)


def chapter_path(number: int) -> Path:
    (found,) = (ROOT / "docs" / "book").glob(f"{number}-*.md")
    return found


def code_cells(number: int) -> list[str]:
    import jupytext

    cells = jupytext.read(chapter_path(number), fmt="md:myst").cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


class Chapter(Mapping[str, Any]):
    """The variables of a chapter; its cells run when the first one is asked for."""

    def __init__(self, number: int) -> None:
        self.number = number

    @functools.cached_property
    def names(self) -> dict[str, Any]:
        import torch

        torch.set_num_threads(1)  # as in the tests, which compare the verdicts
        names: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()):
            for source in code_cells(self.number):
                exec(compile(source, f"chapter {self.number}", "exec"), names)
        return names

    def __getitem__(self, name: str) -> Any:
        return self.names[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def row(claim: Claim, names: Names) -> str:
    """A tested claim as a row of the table."""
    result, judged = claim.judge(names)
    result = f"{result} (time on the machine that wrote this)" if claim.timed else result
    chapter = f"[{claim.chapter}](book/{chapter_path(claim.chapter).name})"
    command = f"`{claim.command or f'python benchmarks/claims.py {claim.chapter}'}`"
    cells = (f'"{claim.text}"', claim.place, chapter, command, result, judged, claim.since)
    return f"| {' | '.join(cells)} |"


HEADER = """\
# Claims of the seeds, tried

Sentences of *The Illustrated Transformer From Scratch* (and of *Transformers*, the second seed)
with a number or a comparison, and what came of trying them. `python benchmarks/claims.py` writes
the table: it runs the chapters of [the book](book/index.md) and judges each claim by a fixed rule
from the chapter's numbers. `--only` and some words of a claim try that claim alone. Verdicts:
*holds*, *holds here in part*, *not here*, *refuted* (also in the [errata](errata.md)), *could not
be tried* (with the command for it). A verdict is about the experiment of the chapter, small models
on a CPU, and not about every model there is.

It covers the sections of the chapters that the table names.

| claim | section | chapter | command | result | verdict | since |
|---|---|---|---|---|---|---|
"""


# --- the whole ledger ----------------------------------------------------------------------


def fingerprint(number: int) -> str:
    """Hash of what the rows of a chapter depend on, the library's own code apart."""
    rules = [
        Path(__file__).parent / f"{each.__name__}.py"
        for each in SETS
        if any(claim.chapter == number for claim in each.CLAIMS)
    ]
    measured = any(claim.command for claim in CLAIMS if claim.chapter == number)
    digest = hashlib.sha256("\n".join(code_cells(number)).encode())
    for path in (*rules, *(RECORDED if measured else ())):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def stored() -> dict[int, dict[str, Any]]:
    """Chapters that have run and have not changed since."""
    if not STORE.exists():
        return {}
    records = (json.loads(line) for line in STORE.read_text(encoding="utf-8").splitlines())
    return {
        each["chapter"]: each
        for each in records
        if each["fingerprint"] == fingerprint(each["chapter"])
    }


def run_all(fresh: bool) -> list[str]:
    """The rows of every chapter, each in a process of its own; finished ones are not run again."""
    if fresh:
        STORE.unlink(missing_ok=True)
    numbers = sorted({claim.chapter for claim in CLAIMS})
    found, began = stored(), time.monotonic()
    missing = [number for number in numbers if number not in found]
    for ran, number in enumerate(missing):
        spent = time.monotonic() - began
        left = f"about {spent / ran * (len(missing) - ran):.0f} s left" if ran else "first of them"
        name = chapter_path(number).stem
        print(f"{name}: {ran} of {len(missing)} chapters run, {left}", file=sys.stderr, flush=True)
        record = {"chapter": number, "fingerprint": fingerprint(number)}
        words = [sys.executable, __file__, str(number)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"chapter {number} failed; the chapters before it are stored")
        found[number] = {**record, "rows": done.stdout.splitlines()}
        with STORE.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found[number]) + "\n")
    return [line for number in numbers for line in found[number]["rows"]]


def run_some(claims: Sequence[Claim]) -> list[str]:
    """The rows of some claims."""
    os.environ["MPLBACKEND"] = "agg"
    with tempfile.TemporaryDirectory() as progress:
        os.environ["XDG_DATA_HOME"] = progress  # the chapters' exercises are not the reader's
        names = {number: Chapter(number) for number in {claim.chapter for claim in claims}}
        return [row(claim, names[claim.chapter]) for claim in claims]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = sorted({claim.chapter for claim in CLAIMS})
    parser.add_argument("chapter", type=int, nargs="?", choices=known)
    parser.add_argument("--only", metavar="WORDS", help="words of the claims to try, and print")
    parser.add_argument("--fresh", action="store_true", help="run chapters again that have run")
    asked = parser.parse_args()
    if asked.chapter is None and asked.only is None:
        try:
            rows = run_all(asked.fresh)
        except KeyboardInterrupt:
            sys.exit(
                "\nstopped; the chapters that have run are stored, and the same command goes on"
            )
        PAGE.write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
        print(f"wrote {len(rows)} claims to {PAGE}", file=sys.stderr)
        return
    chosen = [
        claim
        for claim in CLAIMS
        if asked.chapter in (None, claim.chapter)
        and (asked.only or "").casefold() in claim.text.casefold()
    ]
    if not chosen:
        parser.error(f"no claim has the words {asked.only!r}: copy some from docs/claims.md")
    print("\n".join(run_some(chosen)))


if __name__ == "__main__":
    main()
