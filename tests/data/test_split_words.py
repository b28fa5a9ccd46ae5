"""Words with character offsets, and which tokens belong to which word."""

import pytest

from clearformer.data.split_words import as_words, encode_words, split_words
from clearformer.text import train


def test_words_have_character_offsets():
    text = "Don't  go (to Rome)!"
    words = split_words(text)
    assert [word.text for word in words] == ["Don", "'", "t", "go", "(", "to", "Rome", ")", "!"]
    assert all(text[word.start : word.end] == word.text for word in words)


def test_offsets_of_given_words():
    assert [(word.start, word.end) for word in as_words(["a", "bc", "d"])] == [
        (0, 1),
        (2, 4),
        (5, 6),
    ]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "bytes", "characters", "words"])
def test_word_tokens_match_tokens_of_text(kind, prose):
    tokenizer = train(kind, [prose], {"wordpiece": 300, "bpe": 400, "words": 300}.get(kind))
    text = "the import system of Python, the class statement"
    encoded = encode_words(split_words(text), tokenizer)
    assert encoded.ids.tolist() == tokenizer.encode(text).tolist()
    assert encoded.firsts.tolist()[0] == 0
    assert len(encoded.firsts) == len(split_words(text))


def test_word_without_tokens_becomes_unknown_token(prose):
    tokenizer = train("wordpiece", [prose], 300)
    encoded = encode_words(as_words(["a", "\u200b", "b"]), tokenizer)
    assert encoded.words.tolist() == [0, 1, 2]
    assert encoded.ids[1] == tokenizer.specials["[UNK]"]
