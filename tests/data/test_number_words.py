"""Number-words corpus: exact answers, and no number in two parts."""

import builtins

import pytest

from clearformer.data import DataFolders, corpus
from clearformer.data.number_words import LIMIT, SMALL, chosen, part_of


def test_every_number_is_in_one_part():
    numbers = chosen()
    assert numbers == sorted(set(numbers)) == chosen()
    assert numbers[:SMALL] == list(range(SMALL))
    assert 20_000 < len(numbers) < 26_000
    assert numbers[-1] <= LIMIT
    counts = [sum(part_of(n) == part for n in numbers) for part in ("train", "validation", "test")]
    assert sum(counts) == len(numbers)
    assert min(counts) > 0.08 * len(numbers)


def test_small_numbers_are_well_represented():
    assert sum(number < 100_000 for number in chosen()) > 8000


def test_number_words_in_english_and_german(monkeypatch):
    monkeypatch.setattr("clearformer.data.number_words.chosen", lambda: [0, 7, 21, 1101, 234_501])
    monkeypatch.setattr("clearformer.data.number_words.part_of", lambda number: "test")
    pairs = corpus("number-words").read("test", DataFolders())
    assert pairs.sources[1:4] == ("seven", "twenty-one", "one thousand, one hundred and one")
    assert pairs.targets[1] == "sieben"
    assert pairs.targets[4] == "zweihundertvierunddreißigtausendfünfhunderteins"
    assert len(corpus("number-words").read("train", DataFolders())) == 0


def test_missing_num2words_is_reported(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "num2words":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"which is not installed: pip install num2words$"):
        corpus("number-words").read("train", DataFolders())
