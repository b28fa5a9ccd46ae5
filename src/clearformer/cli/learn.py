"""`clearformer learn`: exercises of the book, with checks of your answers."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from clearformer.cli.output import say


@dataclass(frozen=True)
class Learn:
    """Exercises of the book: list them, check an answer (learn check 1.2 my.py), get a hint.

    `learn` lists the chapters and exercises. `learn show 1.2` prints a task, `learn check 1.2
    my.py` runs your file and judges the function in it, `learn hint 1.2` gives one hint after the
    other and `learn solution 1.2` the solution. A wrong answer ends with exit code 1.
    """

    action: tyro.conf.Positional[Literal["list", "show", "check", "hint", "solution"]] = "list"
    """What to do."""
    exercise: tyro.conf.Positional[str | None] = None
    """The number of the exercise, as in 1.2."""
    file: tyro.conf.Positional[Path | None] = None
    """Your Python file, for check; it is run as your own code."""

    def run(self) -> None:
        if self.action == "list":
            _print_list()
            return
        if self.exercise is None:
            raise ValueError(
                f"learn {self.action} needs an exercise: clearformer learn {self.action} 1.1; "
                f"clearformer learn lists them"
            )
        if self.action == "check":
            self._check(self.exercise)
            return
        from clearformer.learn import hint, solution

        if self.action == "show":
            _print_task(self.exercise)
        elif self.action == "hint":
            say(hint(self.exercise))
        else:
            for line in solution(self.exercise).rstrip().split("\n"):
                say(line)

    def _check(self, number: str) -> None:
        from clearformer.learn import check
        from clearformer.learn.answers import load_answer
        from clearformer.learn.catalogue import find

        name = find(number).name
        if self.file is None:
            raise ValueError(
                f"learn check needs a file: write {name} into my.py, then clearformer learn "
                f"check {number} my.py"
            )
        verdict = check(number, load_answer(self.file, name))
        say(str(verdict))
        if not verdict:
            say(f"help: clearformer learn hint {number}")
            sys.exit(1)


def _print_list() -> None:
    from clearformer.learn import chapters, progress

    records = progress.load()
    total = solved = 0
    for chapter in chapters():
        say(f"{chapter.number}  {chapter.title}  (docs/book/{chapter.page}.md)")
        for each in chapter.exercises:
            record = records.get(each.number, progress.Record())
            total, solved = total + 1, solved + record.solved
            tried = f"tried {record.attempts} times" if record.attempts else ""
            say(f"  {each.number}  {each.title:44} {'solved' if record.solved else tried}".rstrip())
    say()
    say(f"{solved} of {total} solved. clearformer learn show 1.1 prints a task.")


def _print_task(number: str) -> None:
    from clearformer.learn.catalogue import find

    exercise = find(number)
    say(f"{exercise.number}  {exercise.title}")
    say()
    for line in textwrap.wrap(exercise.task, 88):
        say(line)
    say()
    say(f"    {exercise.signature}")
    say("        ...")
    say()
    say(f"Check it with: clearformer learn check {number} my.py")
