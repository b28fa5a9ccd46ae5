"""Tokenizers by name, and their file."""

import json
import re
import subprocess
import sys

import pytest

from clearformer.text import Bytes, Words, from_json, load, save, sha256, train


def test_unknown_kinds():
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


def test_sizes():
    assert train("bytes", []).size == train("bytes", [], 256).size == 256
    with pytest.raises(ValueError, match="a bytes tokenizer is to be 100, but there are 256 bytes"):
        train("bytes", [], 100)
    with pytest.raises(ValueError, match="a words tokenizer is to be 0, but it must be at least 1"):
        train("words", ["a"], 0)
    assert train("words", ["a b"]).size == 4
    assert train("characters", ["ab"]).size == 3


def test_the_file_gives_it_back(tmp_path):
    path = tmp_path / "tokenizer.json"
    for tokenizer in (Bytes(), train("characters", ['aé\ud7ff\n\\"']), train("words", ["x'y Z"])):
        save(tokenizer, path)
        assert sha256(load(path)) == sha256(tokenizer)
        assert json.loads(path.read_text(encoding="ascii"))["format"] == 1
    assert [each.name for each in tmp_path.iterdir()] == ["tokenizer.json"]


def test_the_identity_does_not_depend_on_how_the_file_is_written(tmp_path):
    tokenizer = Words(["b", "a", "é"])
    path = tmp_path / "tokenizer.json"
    path.write_text('{"words": ["b", "a", "é"],   "kind": "words"}', encoding="utf-8")
    assert sha256(load(path)) == sha256(tokenizer)
    assert sha256(Words(["a", "b", "é"])) != sha256(tokenizer)


DAMAGE = [
    (
        b"",
        "it is no JSON (Expecting value: line 1 column 1 (char 0)), so no tokenizer: "
        "take it again from its source",
    ),
    (b'{"kind": "by', "it is no JSON (Unterminated string"),
    (b"\xff\xfe{", "it is no JSON ("),
    (
        b'{"kind": ' + b"1" * 5000 + b"}",
        "it has a number of thousands of digits, but no id is that large: take it again from its "
        "source",
    ),
    (b"[" * 100_000, "it is no JSON (maximum recursion"),
    (b"[1]", "a tokenizer is [1], but it must be an object with a kind"),
    (b"{}", "there is no tokenizer None: known: bytes"),
    (b'{"kind": ["bpe"]}', "there is no tokenizer ['bpe']"),
    (
        b'{"kind": "bytes", "format": 2}',
        "the format is 2, but this clearformer reads 1: a newer clearformer wrote it",
    ),
    (b'{"kind": "words"}', "words is None, but it must be a list of strings"),
    (
        b'{"kind": "words", "words": ["a", 1]}',
        "words is ['a', 1], but it must be a list of strings",
    ),
    (b'{"kind": "words", "words": ["a", "a"]}', "the words must be different"),
    (b'{"kind": "characters", "characters": 7}', "characters is 7, but it must be a string"),
    (b'{"kind": "characters", "characters": "ba"}', "the characters must be different"),
    (b'{"kind": "bpe"}', "the tokenizer is None, but it must be an object"),
    (b'{"kind": "bpe", "library": {}}', "model is None, but it must be an object"),
]


@pytest.mark.parametrize(("content", "sentence"), DAMAGE, ids=lambda each: str(each)[:30])
def test_a_damaged_file_is_one_sentence(tmp_path, content, sentence):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="^" + re.escape(f"{path}: {sentence}")) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_missing_too_large_and_unreadable(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="there is no such file, but a tokenizer is needed"):
        load(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match=r"it cannot be read \(Is a directory\)"):
        load(tmp_path)
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(64 * 2**20 + 1)  # a hole: nothing is written
    with pytest.raises(
        ValueError, match="it has 67,108,865 bytes, but a tokenizer has at most 67,108,864"
    ):
        load(path)
    monkeypatch.setattr("clearformer.limits.MAX_JSON_BYTES", 3)
    save(Bytes(), path)
    with pytest.raises(ValueError, match="but a tokenizer has at most 3"):
        load(path)


def test_importing_is_instant():
    script = (
        "import sys, clearformer.text, clearformer.data;"
        "heavy = {'torch', 'tokenizers', 'clearformer.core', 'clearformer.config'};"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
