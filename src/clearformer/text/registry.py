"""The tokenizers there are, by name: learn one from text, store it, open it again."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from clearformer import limits
from clearformer.did_you_mean import nearest
from clearformer.text import byte_fallback, sentencepiece
from clearformer.text.plain import Bytes, Characters, Words
from clearformer.text.subwords import BytePairs, WordPieces
from clearformer.text.tokenizer import Tokenizer

FORMAT = 1


def _bytes(texts: Iterable[str], size: int | None) -> Tokenizer:
    if size not in (None, 256):
        raise ValueError(
            f"the vocabulary of a bytes tokenizer is to be {size}, but there are 256 bytes: "
            f"leave the size out"
        )
    return Bytes()


def _from_characters(data: Mapping[str, Any]) -> Tokenizer:
    characters = data.get("characters")
    if not isinstance(characters, str):
        raise ValueError(f"characters is {characters!r:.60}, but it must be a string")
    return Characters(characters)


def _from_words(data: Mapping[str, Any]) -> Tokenizer:
    words = data.get("words")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"words is {words!r:.60}, but it must be a list of strings")
    return Words(words)


Learn = Callable[[Iterable[str], int | None], Tokenizer]
Open = Callable[[Mapping[str, Any]], Tokenizer]

# kind: (learn it from texts with so many ids or its usual number, open it from JSON)
KINDS: Mapping[str, tuple[Learn, Open]] = {
    "bytes": (_bytes, lambda data: Bytes()),
    "characters": (Characters.train, _from_characters),
    "words": (lambda texts, size: Words.train(texts, size or 50_000), _from_words),
    "bpe": (
        lambda texts, size: BytePairs.train(texts, size or 8192),
        lambda data: BytePairs.from_library(data.get("library")),
    ),
    "wordpiece": (
        lambda texts, size: WordPieces.train(texts, size or 8192),
        lambda data: WordPieces.from_library(data.get("library")),
    ),
    "fallback-bpe": (
        byte_fallback.learn,
        lambda data: byte_fallback.ByteFallbackPairs.from_library(data.get("library")),
    ),
    "sentencepiece": (sentencepiece.learn, sentencepiece.from_json),
}


def train(kind: str, texts: Iterable[str], size: int | None = None) -> Tokenizer:
    """Learn a tokenizer of this kind with at most `size` ids; none: its usual number.

    The same texts give the same tokenizer, on any machine and in any process.
    """
    if kind not in KINDS:
        raise ValueError(f"there is no tokenizer {kind!r}: {nearest(kind, KINDS)}")
    if size is not None and size < 1:
        raise ValueError(
            f"the vocabulary of a {kind} tokenizer is to be {size}, but it must be at least 1"
        )
    learn, _ = KINDS[kind]
    return learn(texts, size)


def from_json(data: Any) -> Tokenizer:
    """The tokenizer that `to_json` described; anything damaged or unknown is refused."""
    if not isinstance(data, dict):
        raise ValueError(f"a tokenizer is {data!r:.60}, but it must be an object with a kind")
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"there is no tokenizer {kind!r:.60}: {nearest(str(kind), KINDS)}")
    if data.get("format", FORMAT) != FORMAT:
        raise ValueError(
            f"the format is {data['format']!r:.60}, but this clearformer reads {FORMAT}: "
            f"a newer clearformer wrote it"
        )
    _, open_ = KINDS[kind]
    return open_(data)


def save(tokenizer: Tokenizer, path: str | os.PathLike[str]) -> None:
    """Write tokenizer.json; whoever reads the folder meanwhile sees the old file or the new."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # In ASCII: what is in a vocabulary may look like anything in an editor.
    text = json.dumps({"format": FORMAT, **tokenizer.to_json()}, indent=1)
    temporary.write_text(text + "\n", encoding="ascii")
    os.replace(temporary, path)


def load(path: str | os.PathLike[str]) -> Tokenizer:
    """Read tokenizer.json, from anyone: nothing in it is run, and damage is named."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > limits.MAX_JSON_BYTES:
            raise ValueError(
                f"it has {size:,} bytes, but a tokenizer has at most {limits.MAX_JSON_BYTES:,} "
                f"(MAX_JSON_BYTES)"
            )
        return from_json(_parsed(path.read_bytes()))
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file, but a tokenizer is needed") from None
    except OSError as error:
        raise ValueError(f"{path}: it cannot be read ({error.strerror})") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{path}: it is no JSON ({reason}), so no tokenizer: take it again from its source"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:  # all that JSON allows and Python does not read
        raise ValueError(
            "it has a number of thousands of digits, but no id is that large: take it again from "
            "its source"
        ) from None
