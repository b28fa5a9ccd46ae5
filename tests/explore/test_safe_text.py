"""Text from files is shortened and always valid Unicode."""

import pytest

from clearformer.explore.safe_text import MAX_LENGTH, clean


@pytest.mark.parametrize("text", ["", "plain", "ä€🙂", "a\nb\x00"])
def test_valid_text_is_unchanged(text):
    assert clean(text) == text


def test_lone_surrogates_become_question_marks():
    assert clean("a\ud800b\udcff") == "a?b?"


def test_long_text_is_shortened():
    assert clean("x" * 9999) == "x" * MAX_LENGTH
    assert clean("xyz", 2) == "xy"
