"""`clearformer answer RUN "Where does she live?" --context "..."`: an answer found in a text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import say, write_json


@dataclass(frozen=True)
class Answer(ModelCommand):
    """Answer questions by a part of a text, with a model for question answering."""

    questions: tyro.conf.Positional[tuple[str, ...]] = ()
    """Questions about the context."""
    context: str | None = None
    """The text that holds the answers."""
    context_file: Path | None = None
    """A file with that text."""
    file: Path | None = None
    """Questions with their contexts: SQuAD's .json, or .jsonl with question and context."""
    out: Path | None = None
    """Write a table here (.csv, .tsv, .jsonl or .json); none: to the terminal."""
    json: bool = False
    """Print every answer as a line of JSON."""

    def run(self) -> None:
        from clearformer import data
        from clearformer.cli.tables import require_place
        from clearformer.data.write_tables import require_extension

        require_place(self.out, self.file)
        if self.json and self.out is not None:
            raise ValueError("give either --json or --out, and not both")
        if self.out is not None:
            require_extension(self.out)
        asked, contexts = self._asked()
        model = self.load()
        found = model.answer(asked, contexts)
        if self.out is not None:
            data.write_table(self.out, [each.row() for each in found])
            say(f"{len(found):,} answers: {self.out}")
            return
        for each in found:
            if self.json:
                write_json(each.row())
                continue
            say(f"{each.text or '(no answer)'}  ({each.probability:.3f})")

    def _asked(self) -> tuple[list[str], list[str]]:
        """Questions, and the context of each."""
        from clearformer.data import open_text
        from clearformer.data.question_files import read_questions

        if self.file is not None:
            if self.questions or self.context is not None or self.context_file is not None:
                raise ValueError("give either --file or questions with a context, and not both")
            rows = read_questions(self.file, answers=False).rows
            return [row.question for row in rows], [row.context for row in rows]
        if not self.questions:
            raise ValueError("there is no question: give one, or name a --file of questions")
        if (self.context is None) == (self.context_file is None):
            raise ValueError("give the text to read: either --context or --context-file")
        context = self.context
        if context is None:
            context = "".join(open_text(str(self.context_file)).decoded())
        return list(self.questions), [context] * len(self.questions)
