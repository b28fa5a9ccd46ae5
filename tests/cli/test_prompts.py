"""Prompts and choices of `clearformer generate`."""

import pytest

from clearformer.cli.prompts import read_prompts, split_choices


def test_prompts_may_be_json(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": "a\\nb"}\n{"prompt": "c", "id": 3}\n')
    assert read_prompts(tmp_path / "p.jsonl") == ["a\nb", "c"]
    (tmp_path / "p.txt").write_bytes("a\u2028b\x85c\r\n\nd".encode())
    assert read_prompts(tmp_path / "p.txt") == ["a\u2028b\x85c", "", "d"]
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\n[1]\n')
    with pytest.raises(
        ValueError, match=r"bad.jsonl, line 2: it is \[1\], but an object is needed"
    ):
        read_prompts(tmp_path / "bad.jsonl")
    (tmp_path / "none.txt").write_text("")
    with pytest.raises(ValueError, match=r"none.txt: it is empty, but a text is needed"):
        read_prompts(tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes(b"one\ncaf\xe9\n")
    with pytest.raises(
        ValueError, match=r"latin.txt, line 2: byte 7 is 0xE9, which is not UTF-8 there: save the"
    ):
        read_prompts(tmp_path / "latin.txt")


def test_prompts_may_be_a_table(tmp_path):
    """Only the prompt column of a table is read, not its raw lines."""
    (tmp_path / "p.csv").write_text('prompt,id\n"a, b",1\nc,2\n')
    (tmp_path / "p.tsv").write_text("prompt\tid\na, b\t1\nc\t2\n")
    (tmp_path / "p.json").write_text('[{"prompt": "a, b"}, "c"]')
    for name in ("p.csv", "p.tsv", "p.json"):
        assert read_prompts(tmp_path / name) == ["a, b", "c"]


def test_bom_is_not_part_of_prompt(tmp_path):
    for name, text in (("p.txt", "Hello"), ("p.jsonl", '{"prompt": "Hello"}')):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert read_prompts(tmp_path / name) == ["Hello"]


def test_choices_are_comma_separated():
    assert split_choices("yes,no") == ["yes", "no"]
    assert split_choices(r"yes\, sir,no\n,") == ["yes, sir", r"no\n", ""]
