"""Registry of tokenizers: train one by its kind, or rebuild one from JSON."""

from collections.abc import Iterable, Mapping
from typing import Any

from clearformer.did_you_mean import nearest
from clearformer.text.byte_fallback import ByteFallbackPairs
from clearformer.text.plain import Bytes, Characters, Words
from clearformer.text.sentencepiece import SentencePieces
from clearformer.text.subwords import BytePairs, WordPieces
from clearformer.text.tokenizer import Tokenizer

FORMAT = 1

_CLASSES: tuple[type[Tokenizer], ...] = (
    Bytes,
    Characters,
    Words,
    BytePairs,
    WordPieces,
    ByteFallbackPairs,
    SentencePieces,
)
KINDS: Mapping[str, type[Tokenizer]] = {each.kind: each for each in _CLASSES}


def train(kind: str, texts: Iterable[str], size: int | None = None) -> Tokenizer:
    """Train a tokenizer of this kind with at most `size` ids.

    The same texts give the same tokenizer, on any machine and in any process.
    """
    if kind not in KINDS:
        raise ValueError(f"there is no tokenizer {kind!r}: {nearest(kind, KINDS)}")
    if size is not None and size < 1:
        raise ValueError(
            f"the vocabulary size of a {kind} tokenizer is {size}, but it must be at least 1"
        )
    return KINDS[kind].train(texts, size)


def from_json(data: Any) -> Tokenizer:
    """The tokenizer from its `to_json`; ValueError if it is damaged or unknown."""
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
    return KINDS[kind].from_json(data)
