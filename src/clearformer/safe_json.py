"""JSON that anyone may have written: read whole, or refused in one sentence.

Without torch, and below everything else, so that a file is read in the same way wherever it is.
"""

import json
from pathlib import Path
from typing import Any

from clearformer import limits, safe_files


def read_json(path: Path) -> Any:
    """The document in a file of reasonable size; a link to one is followed."""
    try:
        # A pipe would keep its reader waiting for ever, and a device has no end.
        if path.exists() and not path.is_file():
            raise ValueError(f"{path} is no file, but a JSON document is needed")
        size = path.stat().st_size
        if size > limits.MAX_JSON_BYTES:
            raise ValueError(
                f"{path} has {size:,} bytes, but {limits.MAX_JSON_BYTES:,} are the most "
                f"(MAX_JSON_BYTES)"
            )
        text = path.read_bytes()
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from None
    return parse_json(text, path)


def read_run_json(path: Path) -> Any:
    """The document in a file inside a run folder, where no link is followed."""
    try:
        text = safe_files.read(path, limits.MAX_JSON_BYTES, "MAX_JSON_BYTES")
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from None
    return parse_json(text, path)


def parse_json(text: bytes, path: Path) -> Any:
    """The document that a file of this path holds."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ValueError(f"{path} is no JSON: {str(problem).splitlines()[0]}") from None
    except ValueError:  # JSON allows it, and Python does not read it
        raise ValueError(
            f"{path} has a number of thousands of digits, but no id or setting is that large: "
            f"take the file from its source again"
        ) from None
