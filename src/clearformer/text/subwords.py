"""Subword tokenizers: byte pairs (GPT-2) and WordPiece (BERT).

The `tokenizers` library trains and encodes. This module makes training deterministic, and passes
the library only JSON that `hf_tokenizers` wrote.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

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

MAX_ALPHABET = 1000  # characters in a learned WordPiece vocabulary, as in BERT's
DEFAULT_SIZE = 8192


class LibraryTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library."""

    def __init__(
        self,
        document: dict[str, Any],
        prefix: Sequence[str] = (),
        suffix: Sequence[str] = (),
        *,
        match_specials: bool,
    ) -> None:
        self.document = document  # the library's JSON, as `hf_tokenizers` writes it
        self.tokens = tuple(document["model"]["vocab"])  # in the order of ids
        self.library = open_library(document)
        # The library's name is misleading: True means that special tokens in a text are text.
        self.library.encode_special_tokens = not match_specials
        added = document["added_tokens"]
        self.specials = {token["content"]: token["id"] for token in added if token["special"]}
        self.unsplittable = tuple(token["content"] for token in added)
        self.prefix_ids = tuple(self.specials[name] for name in prefix)
        self.suffix_ids = tuple(self.specials[name] for name in suffix)

    @classmethod
    def from_library(cls, data: Any) -> Self:
        """From the library's own JSON (Hugging Face's tokenizer.json)."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls.from_library(data.get("library"))

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "library": self.document}

    @property
    def size(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Ids:
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        for text in texts:
            require_unicode(text)
        encodings = self.library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.asarray(each.ids, dtype=np.int32) for each in encodings]

    def encode_with_specials(self, text: str) -> Ids:
        """The ids of a text in which the name of a special token means that token.

        For a prompt that the user wrote; untrusted text must not be able to do this.
        """
        names = sorted(self.specials, key=len, reverse=True)
        if not names:
            return self.encode(text)
        parts = re.split(f"({'|'.join(map(re.escape, names))})", text)
        ids = [
            np.asarray([self.specials[part]], dtype=np.int32) if index % 2 else self.encode(part)
            for index, part in enumerate(parts)
        ]
        return np.concatenate(ids)

    def decode(self, ids: ArrayLike) -> str:
        return self.library.decode(self.check_ids(ids), skip_special_tokens=False)

    def pieces(self, ids: ArrayLike) -> list[str]:
        return [self.tokens[i] for i in self.check_ids(ids)]


class BytePairs(LibraryTokenizer):
    """Byte-level BPE like GPT-2's: encodes any text, and `decode` restores it (normalized, if the
    specification has a normal form).

    Special tokens (`<|endoftext|>`) are inserted by their id only; in a text, their name is text
    like any other.
    """

    kind = "bpe"

    def __init__(self, spec: BytePairSpec) -> None:
        self.spec = spec
        super().__init__(write_byte_pairs(spec), spec.prefix, match_specials=False)

    @classmethod
    def from_library(cls, data: Any) -> Self:
        return cls(read_byte_pairs(data))

    @classmethod
    def train(cls, texts: Iterable[str], size: int | None = None) -> Self:
        """The 256 bytes, then merges of the most common pair until there are `size` tokens.

        Among equally common pairs the one with the lower ids is merged first: the lower id of its
        first token, then of its second. The bytes have ids in the order of their printable
        characters (`byte_characters`), and a new token has the next id. This is the rule of the
        `tokenizers` library. Other implementations break ties differently, for example by the
        greater pair of byte strings, and so learn other merges from the same text.
        """
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        size = size or DEFAULT_SIZE
        require_size(cls.kind, size, 256, "the 256 bytes come first")
        library = Tokenizer(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[],
            show_progress=False,
        )
        has_text = False

        def checked() -> Iterator[str]:
            nonlocal has_text
            for text in texts:
                require_unicode(text)
                has_text = has_text or bool(text)
                yield text

        library.train_from_iterator(checked(), trainer)
        require_text(cls.kind, has_text)
        model = json.loads(library.to_str())["model"]
        return cls(
            BytePairSpec(
                vocabulary=_by_id(model["vocab"]),
                merges=tuple((first, second) for first, second in model["merges"]),
            )
        )

    def pieces(self, ids: ArrayLike) -> list[str]:
        # One by one: a token may be part of a character, which shows as \ufffd.
        return [self.decode([i]) for i in self.check_ids(ids)]


class WordPieces(LibraryTokenizer):
    """WordPiece like BERT's: `walk ##ing`. A whole text becomes `[CLS] text [SEP]`.

    Spacing (and case, unless cased) is lost, so `decode` restores the words and not the text.
    Special tokens are recognized in a text: `Paris is the [MASK] of France`.
    """

    kind = "wordpiece"

    def __init__(self, spec: WordPieceSpec) -> None:
        self.spec = spec
        super().__init__(write_word_pieces(spec), ["[CLS]"], ["[SEP]"], match_specials=True)
        self.padding = self.specials["[PAD]"]
        self.mask = self.specials["[MASK]"]

    @classmethod
    def from_library(cls, data: Any) -> Self:
        return cls(read_word_pieces(data))

    @classmethod
    def train(cls, texts: Iterable[str], size: int | None = None, lowercase: bool = True) -> Self:
        """Special tokens and characters, then merges of the most common pair.

        Among equally common pairs the one with the lower ids is merged first, as in
        `BytePairs.train`.
        """
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

        size = size or DEFAULT_SIZE
        require_size(cls.kind, size, 64, "special tokens and an alphabet come first")
        texts = [text for text in texts if text]  # they are read twice
        for text in texts:
            require_unicode(text)
        require_text(cls.kind, bool(texts))
        normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        splitter = pre_tokenizers.BertPreTokenizer()
        # By default the library numbers the characters in the order of a hash table, which differs
        # between processes, and breaks ties by these numbers. So we fix the order by passing the
        # characters as special tokens, which come first.
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
        vocabulary = json.loads(library.to_str())["model"]["vocab"]
        return cls(WordPieceSpec(vocabulary=_by_id(vocabulary), lowercase=lowercase))

    def is_continuation(self) -> NDArray[np.bool_]:
        return np.array([token.startswith("##") for token in self.spec.vocabulary])


def _alphabet(texts: Iterable[str], limit: int) -> list[str]:
    """The most common characters in Unicode order; ties are broken by Unicode order too."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    visible = [each for each in counts if not each.isspace()]
    visible.sort(key=lambda each: (-counts[each], each))
    return sorted(visible[: min(limit, MAX_ALPHABET)])


def _by_id(vocabulary: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(vocabulary, key=vocabulary.__getitem__))
