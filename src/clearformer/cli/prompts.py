"""What `clearformer generate` is given as text, read: prompts, choices, single tokens."""

from __future__ import annotations

import codecs
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearformer.text import Tokenizer


def read_prompts(file: Path) -> list[str]:
    """The lines of a file, or the prompt of each if they are JSON."""
    from clearformer.text.utf8 import NotTextError, decode

    data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        # Only a line feed ends a line: a prompt may have what others take for an end.
        text = decode(data).replace("\r\n", "\n").removesuffix("\n")
        lines = text.split("\n") if data else []
    except NotTextError as problem:
        raise ValueError(
            f"{file}: byte {problem.offset} {problem.reason}: prompts are texts, so save the file "
            f"as UTF-8"
        ) from None
    if not lines:
        raise ValueError(f"{file} is empty, but it must have a prompt on each line")
    if file.suffix != ".jsonl":
        return lines
    prompts = []
    for number, line in enumerate(lines, 1):
        try:
            prompt = json.loads(line).get("prompt")
        except (json.JSONDecodeError, AttributeError):
            prompt = None
        if not isinstance(prompt, str):
            raise ValueError(
                f"{file}, line {number}: it must be a JSON object with a text as its prompt"
            )
        prompts.append(prompt)
    return prompts


def split_choices(text: str) -> list[str]:
    """What stands between commas; one behind a backslash belongs to a choice."""
    return [choice.replace("\\,", ",") for choice in re.split(r"(?<!\\),", text)]


def token_id(text: str, tokenizer: Tokenizer) -> int:
    """The one token that a text is, or the one that #id names."""
    from clearformer.generate.constrain import continuation

    if re.fullmatch("#[0-9]{1,18}", text):
        if int(text[1:]) >= tokenizer.size:
            raise ValueError(
                f"there is no token {text}: this tokenizer ({tokenizer.kind}) has the ids 0 to "
                f"{tokenizer.size - 1}"
            )
        return int(text[1:])
    ids = continuation(text, tokenizer, "--banned")
    if len(ids) != 1:
        raise ValueError(
            f"{text!r} is no token of this tokenizer ({tokenizer.kind}), which spells it as "
            f"{len(ids)}: give single tokens, or #id"
        )
    return ids[0]
