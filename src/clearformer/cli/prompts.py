"""Parses the text arguments of `clearformer generate`: prompts and choices."""

from __future__ import annotations

import re
from pathlib import Path

from clearformer.cli.inputs import STDIN, awaiting, is_piped


class Absent(str):
    """A default that can be told from the same string given by the user."""


NO_PROMPT = Absent("\n")


def given_prompt(prompt: str) -> str:
    """The prompt, or standard input if the prompt is `-` or there is none."""
    if prompt == STDIN:
        return _piped_prompt()
    if prompt is NO_PROMPT and is_piped():
        from clearformer.data.files import EmptyInputError

        try:
            return _piped_prompt()
        except EmptyInputError:
            return prompt  # the pipe was closed at once
    return prompt


def _piped_prompt() -> str:
    """All of standard input, without a final line break such as `echo` adds."""
    from clearformer.data import open_text

    with awaiting(STDIN, "a prompt"):
        text = "".join(open_text(STDIN).decoded())
    return text.removesuffix("\n").removesuffix("\r")


def read_prompts(file: Path) -> list[str]:
    """The lines of a file, including empty ones, or the column `prompt` of a table."""
    from clearformer.data.read_texts import table_column, text_lines

    table = table_column(file, "prompt")
    if table is not None:
        return list(table.texts)
    with awaiting(file, "prompts, one a line"):
        return list(text_lines(file)[1])


def split_choices(text: str) -> list[str]:
    """Split at commas; a comma after a backslash belongs to a choice."""
    return [choice.replace("\\,", ",") for choice in re.split(r"(?<!\\),", text)]
