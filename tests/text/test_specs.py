"""The parts of a learned tokenizer fit together, or are refused."""

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from clearformer.text.specs import SPECIALS, BytePairSpec, WordPieceSpec, byte_characters


def test_the_alphabet_of_bytes_is_the_library_s():
    assert set(byte_characters()) == set(ByteLevel.alphabet())
    assert len(set(byte_characters())) == 256


def test_a_merge_needs_its_tokens():
    alphabet = tuple(sorted(byte_characters()))
    with pytest.raises(ValueError, match="the merge of 'a' and 'b' needs 'ab', which is not in"):
        BytePairSpec(alphabet, (("a", "b"),))
    BytePairSpec((*alphabet, "ab"), (("a", "b"),))


def test_a_vocabulary_without_all_bytes():
    with pytest.raises(ValueError, match="255 of the 256 bytes are missing from the vocabulary"):
        BytePairSpec(("a",), ())


def test_tokens_are_different_and_there():
    with pytest.raises(ValueError, match="must be different and not empty"):
        WordPieceSpec((*SPECIALS, "a", "a"))
    with pytest.raises(ValueError, match=r"special tokens are not in the vocabulary: \[CLS\]"):
        WordPieceSpec(("[PAD]", "[UNK]", "[SEP]", "[MASK]"))
    with pytest.raises(ValueError, match=r"U\+D800"):
        WordPieceSpec((*SPECIALS, "a\ud800"))
