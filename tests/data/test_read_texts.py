"""Reading texts by file extension: lines, or a column of a table."""

import gzip
import io

import pytest

from clearformer.data import read_texts
from clearformer.data.read_texts import table_column, text_lines


@pytest.fixture
def written(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "one, two\r\nthree\n\n"),
        ("a.en", "\ufeffone, two\nthree"),
        ("names", "one, two\nthree\n"),
        ("a.txt.gz", gzip.compress(b"one, two\nthree\n", mtime=0)),
        ("a.csv", 'id,text\n1,"one, two"\n2,three\n'),
        ("a.TSV", "id\ttext\n1\tone, two\n2\tthree\n"),
        ("a.jsonl", '{"text": "one, two"}\n{"text": "three"}\n'),
        ("a.json", '["one, two", "three"]'),
        ("b.json", '[{"text": "one, two", "id": 1}, {"id": 2, "text": "three"}]'),
        ("a.json.gz", gzip.compress(b'["one, two", "three"]', mtime=0)),
    ],
)
def test_every_form_gives_the_same_texts(written, name, content):
    table = read_texts(written(name, content))
    assert table.texts == ("one, two", "three")
    assert table.labels is None


def test_reads_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert read_texts("-").texts == ("one", "two")


def test_lines_of_long_file_are_complete(written):
    lines = [f"{number} {'word ' * (number % 60)}" for number in range(3000)]
    name, found = text_lines(written("long.txt", "\r\n".join(lines)))
    assert list(found) == lines
    assert name.endswith("long.txt")


def test_table_column_distinguishes_tables_from_lines(written):
    assert table_column(written("a.txt", "x"), "text") is None
    assert table_column(written("a.json", '[{"p": "x"}]'), "p").texts == ("x",)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", "one\n\ntwo", "a.txt, line 2 is empty, but every line must be a text"),
        ("a.json", '{"text": "x"}', "a.json: it begins with '{\"text\": \"x\"}', but a list of te"),
        ("a.json", "[1]", "a.json, item 1: it is 1, but a text or an object is needed"),
        ("a.json", '["x", {"t": "y"}]', "a.json, item 2: there is no column 'text'; the columns"),
        ("a.json", '[{"text": ["x"]}]', "a.json, item 1: column 'text' holds ['x'], but a text is"),
        ("a.json", "[]", "a.json: there are no rows"),
        ("a.json", "[" * 100_000, "a.json: it is not JSON ("),
        ("a.json", "hello", "a.json: it is not JSON (Expecting value"),
        ("a.xml", "<a>", "a.xml: a .xml file cannot be read: use a table (.csv, .tsv, .jsonl"),
        ("a.pdf", "{}", "a.pdf: a .pdf file cannot be read"),
    ],
)  # fmt: skip
def test_rejects_invalid_files(written, name, content, sentence):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        read_texts(written(name, content))
    assert sentence in str(refused.value)
