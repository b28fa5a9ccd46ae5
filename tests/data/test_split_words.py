"""Words with their places, and which tokens belong to which word."""

import pytest

from clearformer.data.split_words import as_words, encode_words, split_words
from clearformer.text import train


def test_words_know_their_characters():
    text = "Don't  go (to Rome)!"
    words = split_words(text)
    assert [word.text for word in words] == ["Don", "'", "t", "go", "(", "to", "Rome", ")", "!"]
    assert all(text[word.start : word.end] == word.text for word in words)


def test_words_that_are_split_already():
    assert [(word.start, word.end) for word in as_words(["a", "bc", "d"])] == [
        (0, 1),
        (2, 4),
        (5, 6),
    ]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "bytes", "characters", "words"])
def test_the_tokens_of_all_words_are_those_of_the_text(kind, prose):
    tokenizer = train(kind, [prose], {"wordpiece": 300, "bpe": 400, "words": 300}.get(kind))
    text = "the import system of Python, the class statement"
    encoded = encode_words(split_words(text), tokenizer)
    assert encoded.ids.tolist() == tokenizer.encode(text).tolist()
    assert encoded.firsts.tolist()[0] == 0
    assert len(encoded.firsts) == len(split_words(text))


def test_a_word_without_tokens_gets_the_unknown_one(prose):
    tokenizer = train("wordpiece", [prose], 300)
    encoded = encode_words(as_words(["a", "\u200b", "b"]), tokenizer)
    assert encoded.words.tolist() == [0, 1, 2]
    assert encoded.ids[1] == tokenizer.specials["[UNK]"]
