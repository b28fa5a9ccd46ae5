"""Tokenizers by name and from JSON."""

import json
import re
import subprocess
import sys

import pytest

from clearformer.text import Bytes, Words, from_json, sha256, train


def test_rejects_unknown_kinds():
    with pytest.raises(
        ValueError,
        match=re.escape("there is no tokenizer 'charactors': did you mean 'characters'?"),
    ):
        train("charactors", ["a"])
    with pytest.raises(
        ValueError,
        match=re.escape(
            "there is no tokenizer 'q': known: bytes, characters, words, bpe, wordpiece"
        ),
    ):
        from_json({"kind": "q"})


def test_rejects_invalid_vocabulary_sizes():
    assert train("bytes", []).size == train("bytes", [], 256).size == 256
    with pytest.raises(ValueError, match="a bytes tokenizer is 100, but it must be 256"):
        train("bytes", [], 100)
    with pytest.raises(ValueError, match="a words tokenizer is 0, but it must be at least 1"):
        train("words", ["a"], 0)
    assert train("words", ["a b"]).size == 4
    assert train("characters", ["ab"]).size == 3


def test_json_round_trip():
    for tokenizer in (Bytes(), train("characters", ['aé\ud7ff\n\\"']), train("words", ["x'y Z"])):
        written = json.dumps(tokenizer.to_json())
        assert sha256(from_json(json.loads(written))) == sha256(tokenizer)


def test_sha256_does_not_depend_on_json_formatting():
    tokenizer = Words(["b", "a", "é"])
    written = '{"words": ["b", "a", "é"],   "kind": "words"}'
    assert sha256(from_json(json.loads(written))) == sha256(tokenizer)
    assert sha256(Words(["a", "b", "é"])) != sha256(tokenizer)


DAMAGE = [
    ([1], "a tokenizer is [1], but it must be an object with a kind"),
    ({}, "there is no tokenizer None: known: bytes"),
    ({"kind": ["bpe"]}, "there is no tokenizer ['bpe']"),
    (
        {"kind": "bytes", "format": 2},
        "the format is 2, but this clearformer reads 1: a newer clearformer wrote it",
    ),
    ({"kind": "words"}, "words is None, but it must be a list of strings"),
    ({"kind": "words", "words": ["a", 1]}, "words is ['a', 1], but it must be a list of strings"),
    ({"kind": "words", "words": ["a", "a"]}, "the words must be unique"),
    ({"kind": "characters", "characters": 7}, "characters is 7, but it must be a string"),
    ({"kind": "characters", "characters": "ba"}, "the characters must be unique"),
    ({"kind": "bpe"}, "the tokenizer is None, but it must be an object"),
    ({"kind": "bpe", "library": {}}, "model is None, but it must be an object"),
]


@pytest.mark.parametrize(("data", "sentence"), DAMAGE, ids=lambda each: str(each)[:30])
def test_rejects_damaged_document(data, sentence):
    with pytest.raises(ValueError, match="^" + re.escape(sentence)) as caught:
        from_json(data)
    assert "\n" not in str(caught.value)


def test_importing_does_not_load_heavy_modules():
    script = (
        "import sys, clearformer.text, clearformer.data;"
        "heavy = {'torch', 'tokenizers', 'clearformer.core', 'clearformer.config'};"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
