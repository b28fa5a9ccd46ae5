"""JSON from untrusted files: parsed completely, or refused in one sentence.

Does not import torch, so that every package reads files in the same way.
"""

import json
from pathlib import Path
from typing import Any

from clearformer import limits, safe_files


def read_json(path: Path) -> Any:
    """The document in a file of at most MAX_JSON_BYTES; symbolic links are followed."""
    return parse_json(read_limited(path, limits.MAX_JSON_BYTES, "MAX_JSON_BYTES"), path)


def read_limited(path: Path, maximum: int, limit: str) -> bytes:
    """The content of a regular file of at most `maximum` bytes; `limit` is its name in limits."""
    try:
        # A pipe would block its reader, and a device has no end.
        if path.exists() and not path.is_file():
            raise ValueError(f"{path} is not a regular file, but one is needed")
        size = path.stat().st_size
        if size > maximum:
            raise ValueError(f"{path} has {size:,} bytes, but {maximum:,} are the most ({limit})")
        return path.read_bytes()
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from None


def read_run_json(path: Path) -> Any:
    """The document in a file inside a run folder, where symbolic links are refused."""
    try:
        text = safe_files.read(path, limits.MAX_JSON_BYTES, "MAX_JSON_BYTES")
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from None
    return parse_json(text, path)


def parse_json(text: bytes, path: Path) -> Any:
    """The document in `text`, the content of the file `path`."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ValueError(f"{path} is not valid JSON: {str(problem).splitlines()[0]}") from None
    except ValueError:  # JSON allows numbers that Python refuses
        raise ValueError(
            f"{path} has a number of thousands of digits, but no id or setting is that large: "
            f"take the file from its source again"
        ) from None
