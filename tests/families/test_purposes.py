"""Presets are found by what they are for."""

import pytest

from clearformer.families import preset, presets
from clearformer.families.purposes import Wish, purpose, read_wish, suitable


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("classify short texts, 2 cores, 10 minutes", Wish("classify", 10, 2, False, short=True)),
        ("sentiment of reviews", Wish("classify", 10, 2, False)),
        ("write stories, 1.5 hours on 4 CPUs", Wish("generate", 90, 4, False)),
        ("continue long books in 30 min", Wish("generate", 30, 2, True)),
        ("translate German, 8 cores, 2h", Wish("translate", 120, 8, False)),
        ("Embed sentences", Wish("fill", 10, 2, False)),
    ],
)
def test_wishes_in_plain_words(text, wish):
    assert read_wish(text) == wish


def test_a_wish_without_a_task():
    with pytest.raises(ValueError, match="'something nice' names no task: say classify"):
        read_wish("something nice")


def test_every_preset_has_a_purpose():
    assert all(purpose(name) for name in presets())
    assert "words and word pairs" in purpose("classifier-pairs")


def test_three_that_answer(clearformer):
    sizes = {name: 10**6 * (1 + len(name)) for name in presets()}
    for verb in ("classify", "generate", "translate", "fill"):
        for long in (False, True):
            found = suitable(Wish(verb, 10, 2, long), sizes)
            assert all(preset(name).verbs[0] == verb for name in found)
    small, large = 1_000, 10**9
    sizes = {name: small if name.endswith("tiny") else large for name in presets()}
    assert suitable(Wish("generate", 1, 1, False), sizes)[0] == "modern-tiny"
    assert suitable(Wish("generate", 1, 1, True), sizes)[0] == "xl-tiny"


def test_it_is_asked_on_the_command_line(clearformer):
    said = clearformer("describe", "--for", "classify short texts, 2 cores, 10 minutes").out
    assert "clearformer train classifier-pairs --data my.csv --minutes 10" in said
    assert "clearformer plan classifier-pairs" in said
    assert "words and word pairs" in clearformer("describe").out
