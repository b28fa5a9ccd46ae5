"""Bytes, characters and words tokenizers."""

import re

import pytest

from clearformer.text.plain import Bytes, Characters, Words, words_of
from clearformer.text.tokenizer import sha256


def test_bytes_round_trip_with_256_ids(strange_texts):
    tokenizer = Bytes()
    assert tokenizer.size == 256
    assert tokenizer.encode("aé").tolist() == [97, 0xC3, 0xA9]
    for text in strange_texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_incomplete_character_decodes_to_replacement():
    assert Bytes().decode(Bytes().encode("aé")[:2]) == "a\ufffd"


def test_byte_pieces_are_printable():
    assert Bytes().pieces([97, 10, 32, 255]) == ["a", "\\x0a", " ", "\\xff"]


def test_sha256_of_bytes_tokenizer_is_stable():
    # A model folder of today must open in ten years: this number is part of the format.
    assert sha256(Bytes()) == "1b5ec18e75637aa79a17040f88dbca7b2350d25f5eb340eb20c5ac2015d04072"


def test_characters_are_sorted_after_the_unknown():
    tokenizer = Characters.train(["banana", "cab\n"])
    assert tokenizer.characters == "\nabcn"
    assert tokenizer.size == 6
    assert tokenizer.encode("ban?").tolist() == [3, 2, 5, 0]
    assert tokenizer.decode([3, 2, 0]) == "ba\ufffd"


def test_characters_round_trip_known_texts(strange_texts):
    tokenizer = Characters.train(strange_texts)
    for text in strange_texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    narrow = Characters.train(["ab"])
    assert narrow.encode("\x00a\U0010ffff").tolist() == [0, 1, 0]  # below, inside, above


def test_characters_keep_most_common():
    assert Characters.train(["aaabbc", "cd"], size=3).characters == "ab"  # b before c: a tie
    with pytest.raises(
        ValueError,
        match="a characters tokenizer is 1, but it must be at least 2: one for a character",
    ):
        Characters.train(["ab"], size=1)


def test_word_splitting():
    text = "It's GREAT, isn't it?!<br /><br>Don’t\tmiss 'em: 10/10 naïve"
    words = "it's great , isn't it ? ! don’t miss ' em : 10 / 10 naïve"
    assert words_of(text) == words.split()


def test_words_keep_most_common_with_ties_by_word():
    texts = ["b a c", "A b", "d a"]
    tokenizer = Words.train(texts, size=5)
    assert tokenizer.words == ("a", "b", "c")  # c before d: a tie
    assert tokenizer.size == 5
    assert tokenizer.encode("a D b").tolist() == [2, 1, 3]
    assert tokenizer.decode([2, 1, 0]) == "a [unknown] [padding]"
    assert Words.train(texts[::-1], size=5).words == tokenizer.words
    assert Words.train(texts, size=99).size == 6
    with pytest.raises(
        ValueError, match="a words tokenizer is 2, but it must be at least 3: one for a word"
    ):
        Words.train(texts, size=2)


@pytest.mark.parametrize("characters", ["", "ba", "aa"])
def test_rejects_unsorted_or_duplicate_characters(characters):
    sentence = "the characters must be unique, in Unicode order and not empty"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Characters(characters)


@pytest.mark.parametrize("words", [[], ["a", "a"], [""]])
def test_rejects_duplicate_or_empty_words(words):
    with pytest.raises(ValueError, match="the words must be unique and not empty"):
        Words(words)
