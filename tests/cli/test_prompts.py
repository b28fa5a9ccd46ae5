"""What `clearformer generate` is given: prompts of any file, choices, single tokens."""

import pytest

from clearformer.cli.prompts import read_prompts, split_choices, token_id
from clearformer.text import Bytes


def test_prompts_may_be_json(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": "a\\nb"}\n{"prompt": "c", "id": 3}\n')
    assert read_prompts(tmp_path / "p.jsonl") == ["a\nb", "c"]
    (tmp_path / "p.txt").write_bytes("a\u2028b\x85c\r\n\nd".encode())
    assert read_prompts(tmp_path / "p.txt") == ["a\u2028b\x85c", "", "d"]
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\n[1]\n')
    with pytest.raises(
        ValueError, match=r"bad.jsonl, line 2: it must be a JSON object with a text"
    ):
        read_prompts(tmp_path / "bad.jsonl")
    (tmp_path / "none.txt").write_text("")
    with pytest.raises(ValueError, match=r"none.txt is empty, but it must have a prompt on each"):
        read_prompts(tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes(b"one\ncaf\xe9\n")
    with pytest.raises(
        ValueError, match=r"latin.txt: byte 7 is 0xE9, which is not UTF-8 there: "
    ) as it:
        read_prompts(tmp_path / "latin.txt")
    assert str(it.value).endswith(": prompts are texts, so save the file as UTF-8")


def test_a_mark_at_the_beginning_is_no_part_of_a_prompt(tmp_path):
    for name, text in (("p.txt", "Hello"), ("p.jsonl", '{"prompt": "Hello"}')):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert read_prompts(tmp_path / name) == ["Hello"]


def test_choices_stand_between_commas():
    assert split_choices("yes,no") == ["yes", "no"]
    assert split_choices(r"yes\, sir,no\n,") == ["yes, sir", r"no\n", ""]


def test_a_token_is_its_text_or_its_number():
    assert token_id("a", Bytes()) == 97
    assert token_id("#97", Bytes()) == 97
    assert token_id("#", Bytes()) == 35
    with pytest.raises(ValueError, match=r"'ab' is no token of this tokenizer \(bytes\), which sp"):
        token_id("ab", Bytes())
