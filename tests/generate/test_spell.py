"""Tokens to text as they come: whole characters, the spaces between words, stop strings."""

import random

import pytest

from clearformer.generate.spell import Spelling, Stops, Token
from clearformer.text import BytePairs, Bytes, Words


def spelled(tokenizer, ids, before=()):
    spelling = Spelling(tokenizer, before)
    return [*(spelling.add(token) for token in ids), spelling.rest()]


def test_a_character_waits_for_all_its_bytes():
    pieces = spelled(Bytes(), "aé€😀".encode())
    assert "".join(pieces) == "aé€😀"
    assert pieces[:3] == ["a", "", "é"]


def test_broken_bytes_come_out_in_the_end():
    assert set("".join(spelled(Bytes(), [0xFF] * 3))) == {"\ufffd"}
    assert spelled(Bytes(), b"a\xc3")[-1] == "\ufffd"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xc3\xa9!",
        b"\xf0\x9f\xf0\x9f\x98\x80!",
        b"\xff" * 100 + "😀".encode() + b"\xe2\x82" * 40,
        b"\xe2\x82\xe2\x82\xac\xf0",
    ],
)
def test_broken_bytes_take_nothing_with_them(data):
    """What streams is what the whole decodes to."""
    assert "".join(spelled(Bytes(), data)) == data.decode(errors="replace")


def test_any_bytes_stream_as_they_decode():
    generator = random.Random(0)
    pairs = BytePairs.train(["ein schöner Tag, ein schönes Jahr 😀"] * 9, 300)
    for tokenizer in (Bytes(), pairs):
        for _ in range(200):
            count = generator.randrange(1, 80)
            ids = [generator.randrange(128, tokenizer.size) for _ in range(count)]
            spelling = Spelling(tokenizer)
            found = "".join(spelling.add(token) for token in ids) + spelling.rest()
            assert found == tokenizer.decode(ids)
            assert len(spelling.ids) < 40


def test_words_are_joined_as_in_the_whole_text():
    words = Words(["good", "morning", "world"])
    pieces = spelled(words, words.encode("morning world"), before=words.encode("good"))
    assert "".join(pieces) == " morning world"


def test_byte_pairs_say_what_the_whole_says():
    tokenizer = BytePairs.train(["ein schöner Tag, ein schönes Jahr 😀"] * 9, 300)
    text = "schöne Tage 😀"
    assert "".join(spelled(tokenizer, tokenizer.encode(text))) == text


def passed(stops, texts):
    """The texts that come through, and how many tokens it took to stop."""
    found = []
    for count, text in enumerate(texts, 1):
        found += [token.text for token in stops.add(Token(0, text, 1.0, 0.0, 0.0))]
        if stops.found:
            return found, count
    return found + [token.text for token in stops.rest()], None


@pytest.mark.parametrize(
    ("strings", "texts", "expected"),
    [
        (["END"], ["a", "E", "N", "D", "b"], (["a"], 4)),  # across token borders
        (["END"], ["aEN", "Db"], (["a"], 2)),  # inside two tokens
        (["END"], ["xENDy"], (["x"], 1)),
        (["END"], ["END"], ([], 1)),
        (["END"], ["E", "N", "x"], (["E", "N", "x"], None)),  # held, then let go
        (["aab"], ["a", "a", "a", "b"], (["a"], 4)),  # begins again inside itself
        (["\n\n", "."], ["one", "\n", "two", ".", "x"], (["one", "\n", "two"], 4)),
        (["END"], ["a", "EN"], (["a", "EN"], None)),  # the text ends first
        ([], ["a", "b"], (["a", "b"], None)),
    ],
)
def test_stop_strings_end_the_text_before_them(strings, texts, expected):
    assert passed(Stops(strings), texts) == expected


def test_nothing_is_held_without_need():
    stops = Stops(["END"])
    assert [token.text for token in stops.add(Token(0, "ab", 1.0, 0.0, 0.0))] == ["ab"]
    assert stops.add(Token(0, "E", 1.0, 0.0, 0.0)) == []


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match=r"^a stop string is empty, so no text could begin"):
        Stops(["x", ""])
