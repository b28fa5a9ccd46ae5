"""All there is to a learned tokenizer: its vocabulary, its merges, and how text is split."""

from dataclasses import dataclass
from typing import Literal

from clearformer.text.utf8 import require_unicode

# How text is split before byte pairs are joined: the published patterns, and no other.
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # BERT's

LONGEST_WORD = 100  # characters; WordPiece calls a longer word unknown


@dataclass(frozen=True)
class BytePairSpec:
    """All there is to a byte-level BPE tokenizer."""

    vocabulary: tuple[str, ...]  # in the order of ids, special tokens included
    merges: tuple[tuple[str, str], ...]  # the earlier, the sooner
    pattern: str = "gpt2"
    whole_words: bool = False  # a word that is in the vocabulary is not built by merges
    specials: tuple[str, ...] = ()
    opening: tuple[str, ...] = ()  # special tokens that open a row that is one whole text
    whole: tuple[str, ...] = ()  # tokens that any text may name, as it may name any word
    normal_form: Literal["NFC"] | None = None  # of Unicode, that a text is brought to first

    def __post_init__(self) -> None:
        require_vocabulary(self.vocabulary, (*self.specials, *self.whole))
        for name in self.whole:
            # So that no end of a chunk and no normal form comes between its characters.
            if name in self.specials or not all("!" <= letter <= "~" for letter in name):
                raise ValueError(
                    f"the token {name!r:.60} is to be found whole in a text, but only one word of "
                    f"ASCII that is no special token can be"
                )
        for name in self.opening:
            if name not in self.specials:
                raise ValueError(f"{name!r} opens a text, but it is no special token")
        known = set(self.vocabulary)
        missing = set(byte_characters()) - known
        if missing:
            raise ValueError(
                f"{len(missing)} of the 256 bytes are missing from the vocabulary, "
                f"so some text could not be encoded: it is not a byte-level one"
            )
        for first, second in self.merges:
            for part in (first, second, first + second):
                if part not in known:
                    raise ValueError(
                        f"the merge of {first!r} and {second!r} needs {part!r}, "
                        f"which is not in the vocabulary"
                    )


@dataclass(frozen=True)
class WordPieceSpec:
    """All there is to a WordPiece tokenizer like BERT's."""

    vocabulary: tuple[str, ...]  # in the order of ids, special tokens included
    lowercase: bool = True
    strip_accents: bool | None = None  # None: as `lowercase`
    separate_chinese: bool = True
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


def byte_characters() -> tuple[str, ...]:
    """GPT-2's printable character for each byte, in their order: itself, or one of 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))
