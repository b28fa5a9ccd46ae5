"""Specifications of subword tokenizers: vocabulary, merges, and how text is split."""

from dataclasses import dataclass
from typing import Literal

from clearformer.text.utf8 import require_unicode

# How text is split before byte pairs are merged: the published patterns, and no other.
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # BERT's

LONGEST_WORD = 100  # characters; WordPiece maps a longer word to [UNK]

Merges = tuple[tuple[str, str], ...]  # in order of priority


@dataclass(frozen=True)
class BytePairSpec:
    """A byte-level BPE tokenizer."""

    vocabulary: tuple[str, ...]  # in the order of ids, special tokens included
    merges: Merges
    pattern: str = "gpt2"
    ignore_merges: bool = False  # a word in the vocabulary is one token, whatever the merges
    specials: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()  # special tokens before a row that is one whole text
    added: tuple[str, ...] = ()  # tokens that are matched in any text, but are not special
    normal_form: Literal["NFC"] | None = None  # Unicode normalization of the text

    def __post_init__(self) -> None:
        require_vocabulary(self.vocabulary, (*self.specials, *self.added))
        for name in self.added:
            # ASCII without spaces: neither a chunk boundary nor NFC can change it.
            if name in self.specials or not all("!" <= letter <= "~" for letter in name):
                raise ValueError(
                    f"the added token {name!r:.60} is special or not one word of ASCII, which is "
                    f"not supported"
                )
        for name in self.prefix:
            if name not in self.specials:
                raise ValueError(f"the prefix {name!r} is not a special token")
        missing = set(byte_characters()) - set(self.vocabulary)
        if missing:
            raise ValueError(
                f"{len(missing)} of the 256 bytes are missing from the vocabulary, "
                f"so some text could not be encoded: it is not a byte-level vocabulary"
            )
        require_merges(self.merges, self.vocabulary)


@dataclass(frozen=True)
class WordPieceSpec:
    """A WordPiece tokenizer like BERT's."""

    vocabulary: tuple[str, ...]  # in the order of ids, special tokens included
    lowercase: bool = True
    strip_accents: bool | None = None  # None: as `lowercase`
    split_chinese: bool = True  # every Chinese character is a word
    specials: tuple[str, ...] = SPECIALS

    def __post_init__(self) -> None:
        require_vocabulary(self.vocabulary, self.specials)
        for name in SPECIALS:
            if name not in self.specials:
                raise ValueError(f"the special token {name} is missing: WordPiece needs it")


def require_vocabulary(vocabulary: tuple[str, ...], specials: tuple[str, ...]) -> None:
    if len(set(vocabulary)) != len(vocabulary) or not all(vocabulary):
        raise ValueError("the tokens of a vocabulary must be different and not empty")
    require_unicode("".join(vocabulary))
    missing = set(specials) - set(vocabulary)
    if missing:
        raise ValueError(f"special tokens are not in the vocabulary: {', '.join(sorted(missing))}")


def require_merges(merges: Merges, vocabulary: tuple[str, ...]) -> None:
    """Both sides and the result of every merge must be in the vocabulary."""
    known = set(vocabulary)
    for first, second in merges:
        for part in (first, second, first + second):
            if part not in known:
                raise ValueError(
                    f"the merge of {first!r} and {second!r} needs {part!r}, "
                    f"which is not in the vocabulary"
                )


def byte_characters() -> tuple[str, ...]:
    """GPT-2's printable character for each byte, in byte order: itself, or one from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))
