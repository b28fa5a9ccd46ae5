"""Specs of trained tokenizers: their parts must be consistent."""

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from clearformer.text.specs import SPECIALS, BytePairSpec, WordPieceSpec, byte_characters


def test_byte_alphabet_matches_tokenizers_library():
    assert set(byte_characters()) == set(ByteLevel.alphabet())
    assert len(set(byte_characters())) == 256


def test_rejects_merge_of_unknown_token():
    alphabet = tuple(sorted(byte_characters()))
    with pytest.raises(ValueError, match="the merge of 'a' and 'b' needs 'ab', which is not in"):
        BytePairSpec(alphabet, (("a", "b"),))
    BytePairSpec((*alphabet, "ab"), (("a", "b"),))


def test_rejects_vocabulary_without_all_bytes():
    with pytest.raises(ValueError, match="255 of the 256 bytes are missing from the vocabulary"):
        BytePairSpec(("a",), ())


def test_rejects_duplicate_or_missing_tokens():
    with pytest.raises(ValueError, match="must be different and not empty"):
        WordPieceSpec((*SPECIALS, "a", "a"))
    with pytest.raises(ValueError, match=r"special tokens are not in the vocabulary: \[CLS\]"):
        WordPieceSpec(("[PAD]", "[UNK]", "[SEP]", "[MASK]"))
    with pytest.raises(ValueError, match=r"U\+D800"):
        WordPieceSpec((*SPECIALS, "a\ud800"))
