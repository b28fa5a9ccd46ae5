"""Files with a label for each word: CoNLL, JSON, and errors."""

import gzip

import pytest

from clearformer.data.tagged_files import read_tagged


def write(tmp_path, content, name="a.conll"):
    path = tmp_path / name
    path.write_text(content)
    return path


@pytest.mark.parametrize("between", [" ", "\t", "  ", " NNP B-NP ", "\tX\tY\t"])
def test_first_column_is_word_and_last_is_label(tmp_path, between):
    content = f"Mary{between}B-PER\nsleeps{between}O\n\nRome{between}B-LOC\n"
    found = read_tagged(write(tmp_path, content))
    assert found.words == (("Mary", "sleeps"), ("Rome",))
    assert found.labels == (("B-PER", "O"), ("B-LOC",))
    assert found.texts == ("Mary sleeps", "Rome")
    assert found.select([1]).words == (("Rome",),)


def test_skips_document_markers_and_comments(tmp_path):
    content = "-DOCSTART- -X- O\r\n\r\n# sent_id = 1\r\n# O\r\na X\r\n\r\n\r\n"
    found = read_tagged(write(tmp_path, content.replace("-DOCSTART- -X- O", "-DOCSTART- O")))
    assert found.words == (("#", "a"),)


def test_reads_compressed_file(tmp_path):
    path = tmp_path / "a.conll.gz"
    path.write_bytes(gzip.compress(b"a X\nb Y\n"))
    assert read_tagged(path).labels == (("X", "Y"),)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_reads_json_lists(tmp_path, name):
    row = '{"tokens": ["a", "b"], "labels": ["X", 1]}'
    content = f"{row}\n{row}\n" if name == "a.jsonl" else f"[{row}, {row}]"
    found = read_tagged(write(tmp_path, content, name))
    assert found.labels == (("X", "1"),) * 2


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.conll", "\n", "it has no sentences"),
        ("a.conll", "a X\nb\n", r"line 2: it is 'b', but needs a word and its label, in 2 columns"),
        ("a.conll", "a N X\nb X\n", r"line 2: it is 'b X', but needs .* in 3 columns as above"),
        ("a.conll", "a\t\n", r"line 1: it is 'a\\t', but needs a word and its label"),
        ("a.jsonl", "{}", r"line 1: there is no 'tokens'; there are "),
        ("a.jsonl", "[1]", r"line 1: it is \[1\], but an object is needed"),
        ("a.jsonl", "{", r"line 1: it is not JSON"),
        ("a.json", "{}", r"it begins with '\{\}', but needs a list"),
        ("a.json", '[{"tokens": "a b", "labels": []}]', r"'tokens' is 'a b', but a list of texts"),
        (
            "a.json",
            '[{"tokens": ["a"], "labels": ["X", "Y"]}]',
            r"item 1: it has 1 tokens and 2 labels, but each word needs one label",
        ),
    ],
)
def test_rejects_invalid_files(tmp_path, name, content, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_tagged(write(tmp_path, content, name))
