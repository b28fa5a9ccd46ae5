"""Text out of files is cut, and always valid Unicode."""

import pytest

from clearformer.explore.safe_text import MAX_LENGTH, clean


@pytest.mark.parametrize("text", ["", "plain", "ä€🙂", "a\nb\x00"])
def test_text_stays_as_it_is(text):
    assert clean(text) == text


def test_what_utf8_cannot_write_is_a_question_mark():
    assert clean("a\ud800b\udcff") == "a?b?"


def test_long_text_is_cut():
    assert clean("x" * 9999) == "x" * MAX_LENGTH
    assert clean("xyz", 2) == "xy"
