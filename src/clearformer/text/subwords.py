"""Pieces of words, learned from the text: byte pairs (GPT-2) and WordPiece (BERT).

Learning and encoding are the `tokenizers` library's; what is ours is that the result depends
on the text alone, and that nothing unknown in a file reaches the library (`library.py`).
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearformer.text.hf_tokenizers import (
    open_library,
    read_byte_pairs,
    read_word_pieces,
    write_byte_pairs,
    write_word_pieces,
)
from clearformer.text.specs import SPECIALS, BytePairSpec, WordPieceSpec
from clearformer.text.tokenizer import Ids, Tokenizer, require_size, require_text
from clearformer.text.utf8 import require_unicode

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

ALPHABET = 1000  # characters that a learned WordPiece vocabulary keeps, as BERT's


class LibraryTokenizer(Tokenizer):
    """What byte pairs and WordPiece share: the library's tokenizer does the work."""

    library: "Library"
    document: dict[str, Any]  # the library's JSON, written by `library.py`

    def _open(self, document: dict[str, Any]) -> None:
        self.document = document
        self.library = open_library(document)
        self.specials = {
            token["content"]: token["id"] for token in document["added_tokens"] if token["special"]
        }
        self.whole = tuple(token["content"] for token in document["added_tokens"])

    @property
    def size(self) -> int:
        return len(self.document["model"]["vocab"])

    def encode(self, text: str) -> Ids:
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        for text in texts:
            require_unicode(text)
        found = self.library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.asarray(each.ids, dtype=np.int32) for each in found]

    def encode_with_specials(self, text: str) -> Ids:
        """The ids of a text in which the name of a special token means that token.

        For a prompt by the user's own hand; a text from elsewhere must not be able to do this.
        """
        names = sorted(self.specials, key=len, reverse=True)
        if not names:
            return self.encode(text)
        parts = re.split(f"({'|'.join(map(re.escape, names))})", text)
        found = [
            np.asarray([self.specials[part]], dtype=np.int32) if place % 2 else self.encode(part)
            for place, part in enumerate(parts)
        ]
        return np.concatenate(found)

    def decode(self, ids: ArrayLike) -> str:
        return self.library.decode(self.checked(ids).tolist(), skip_special_tokens=False)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "library": self.document}


class BytePairs(LibraryTokenizer):
    """Byte-level BPE as GPT-2's: any text has ids, and `decode` gives it back unchanged, or in
    its normal form.

    Special tokens (`<|endoftext|>`) are put in by their id alone; written in a text, their
    name is text like any other.
    """

    kind = "bpe"

    def __init__(self, spec: BytePairSpec) -> None:
        self.spec = spec
        self._open(write_byte_pairs(spec))
        self.library.encode_special_tokens = True
        self.prefix_ids = tuple(self.specials[name] for name in spec.opening)

    @classmethod
    def from_library(cls, data: Any) -> "BytePairs":
        """From the library's own JSON (Hugging Face's tokenizer.json)."""
        return cls(read_byte_pairs(data))

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> "BytePairs":
        """The 256 bytes, then the most common pair again and again until there are `size`.

        Of equally common pairs the one with the lower ids comes first: the lower id of its first
        token, then of its second. The bytes have ids in the order of their printable characters
        (`byte_characters`), and a new token has the next id. This is the rule of the `tokenizers`
        library. Others break ties otherwise, such as by the greater pair of byte strings, and so
        learn other merges from the same text.
        """
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        require_size(cls.kind, size, 256, "the 256 bytes come first")
        library = Tokenizer(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[],
            show_progress=False,
        )
        watched = _Watched(texts)
        library.train_from_iterator(watched, trainer)
        require_text(cls.kind, watched.found)
        model = _model(library)
        return cls(
            BytePairSpec(
                vocabulary=_in_order(model["vocab"]),
                merges=tuple((first, second) for first, second in model["merges"]),
            )
        )

    def pieces(self, ids: ArrayLike) -> list[str]:
        # One by one: a token may be half a character, which shows as \ufffd.
        return [self.decode([i]) for i in self.checked(ids).tolist()]


class WordPieces(LibraryTokenizer):
    """WordPiece as BERT's: `walk ##ing`. A whole text is a row `[CLS] text [SEP]`.

    Case (unless cased) and spacing are lost, so `decode` gives back the words and not the text.
    Special tokens may be written in a text: `Paris is the [MASK] of France`.
    """

    kind = "wordpiece"

    def __init__(self, spec: WordPieceSpec) -> None:
        self.spec = spec
        self._open(write_word_pieces(spec))
        self.padding = self.specials["[PAD]"]
        self.prefix_ids = (self.specials["[CLS]"],)
        self.suffix_ids = (self.specials["[SEP]"],)
        self.mask = self.specials["[MASK]"]

    @classmethod
    def from_library(cls, data: Any) -> "WordPieces":
        """From the library's own JSON (Hugging Face's tokenizer.json)."""
        return cls(read_word_pieces(data))

    @classmethod
    def train(cls, texts: Iterable[str], size: int, lowercase: bool = True) -> "WordPieces":
        """Special tokens and characters, then the most common pair again and again.

        Of equally common pairs the one with the lower ids comes first, as in `BytePairs.train`.
        """
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

        require_size(cls.kind, size, 64, "special tokens and an alphabet come first")
        texts = [text for text in texts if text]  # read twice
        for text in texts:
            require_unicode(text)
        require_text(cls.kind, bool(texts))
        normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        splitter = pre_tokenizers.BertPreTokenizer()
        # Left alone, the library numbers the characters in the order of a hash table, another
        # in each process, and breaks ties by these numbers. So we choose them, in order, and
        # hand them over as if they were special: those come first.
        alphabet = _alphabet(map(normalizer.normalize_str, texts), limit=(size - 5) // 2)
        inside = [
            character
            for character in alphabet
            if len(splitter.pre_tokenize_str(normalizer.normalize_str(f"a{character}a"))) == 1
        ]
        library = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        library.normalizer = normalizer
        library.pre_tokenizer = splitter
        trainer = trainers.WordPieceTrainer(
            vocab_size=size,
            special_tokens=[*SPECIALS, *(f"##{character}" for character in inside)],
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        )
        library.train_from_iterator(texts, trainer)
        return cls(
            WordPieceSpec(vocabulary=_in_order(_model(library)["vocab"]), lowercase=lowercase)
        )

    def pieces(self, ids: ArrayLike) -> list[str]:
        tokens = self.spec.vocabulary
        return [tokens[i] for i in self.checked(ids).tolist()]

    def continues(self) -> NDArray[np.bool_]:
        return np.array([token.startswith("##") for token in self.spec.vocabulary])


class _Watched:
    """Texts on their way to the library, checked and seen not to be nothing."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = texts
        self.found = False

    def __iter__(self) -> Any:
        for text in self.texts:
            require_unicode(text)
            self.found = self.found or bool(text)
            yield text


def _alphabet(texts: Iterable[str], limit: int) -> list[str]:
    """The most common characters, in the order of Unicode; equally common ones by it too."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    visible = [each for each in counts if not each.isspace()]
    visible.sort(key=lambda each: (-counts[each], each))
    return sorted(visible[: min(limit, ALPHABET)])


def _model(library: "Library") -> dict[str, Any]:
    model: dict[str, Any] = json.loads(library.to_str())["model"]
    return model


def _in_order(vocabulary: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(vocabulary, key=vocabulary.__getitem__))
