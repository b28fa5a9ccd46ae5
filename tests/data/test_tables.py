"""The user's own tables, and every way they can be invalid."""

import gzip
import re

import pytest

from clearformer.data.table_files import open_table
from clearformer.data.tables import Table, is_table, read_table


@pytest.fixture
def written(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_reads_csv(written):
    path = written(
        "a.csv", '\ufefftext,label,more\r\n"one, ""two""\r\nlines",pos,1\r\n\r\nthree,neg,2\r\n'
    )
    table = read_table(path)
    assert table.texts == ('one, "two"\r\nlines', "three")
    assert table.labels == ("pos", "neg")
    assert len(table) == 2


def test_reads_tsv_without_quoting(written):
    path = written("a.tsv", 'label\ttext\nx\t"a lone quote\ny\tfine\n')
    assert read_table(path).texts == ('"a lone quote', "fine")


def test_reads_jsonl(written):
    lines = '{"t": "a\u2028b", "l": 1}\n\n{"l": true, "t": "c\\nd", "z": []}\r\n{"l": 0.5, "t": ""}'
    table = read_table(written("a.jsonl", lines), "t", "l")
    assert table.texts == ("a\u2028b", "c\nd", "")
    assert table.labels == ("1", "true", "0.5")


def test_reads_gzip_without_labels(written):
    table = read_table(written("a.csv.gz", gzip.compress(b"text\na\nb\n")), label=None)
    assert table == Table(table.name, ("a", "b"), None)


def test_large_fields_of_two_tables_at_once(written):
    """The limit of the csv module is global: the end of one table must not lower it."""
    path = written("a.csv", f"text,label\nshort,b\n{'x' * 2**20},a\n")
    first, second = open_table(path).records, open_table(path).records
    next(first), next(second)
    assert [len(str(row["text"])) for _, row in first] == [2**20]
    assert [len(str(row["text"])) for _, row in second] == [2**20]


def test_select_rows():
    table = Table("t", ("a", "b", "c"), ("1", "2", "3"))
    assert table.select([2, 0]) == Table("t", ("c", "a"), ("3", "1"))
    assert Table("t", ("a", "b"), None).select([1]) == Table("t", ("b",), None)


def test_is_table_by_extension():
    assert is_table("x.CSV")
    assert is_table("x.jsonl.gz")
    assert not is_table("x.txt")
    assert not is_table("csv")


WRONG = [
    (
        "a.csv",
        "review,stars\nx,1\n",
        ", line 2: there is no column 'text'; the columns are review, stars",
    ),
    (
        "a.csv",
        "text,stars\nx,1\n",
        ", line 2: there is no column 'label'; the columns are text, stars",
    ),
    ("a.csv", "text,label\nx,\n", ", line 2: the label is empty, as in 1 of 1 rows: fill it in"),
    ("a.csv", "text,label\na,b\nx,  \n", ", line 3: the label is empty, as in 1 of 2 rows"),
    ("a.csv", "text,label\n", ": there are no rows below the header"),
    (
        "a.csv",
        'text,label\n"a\nb",x\ny\n',
        ", line 4: it has 1 fields, but there are 2 columns: text, label",
    ),
    (
        "a.csv",
        "text,label\nx,y,z\n",
        ", line 2: it has 3 fields, but there are 2 columns: text, label",
    ),
    ("a.csv", "text,text\nx,y\n", ", line 1: two columns have the same name, 'text'"),
    ("a.csv", 'text,label\n"x,y\n', ", line 2: a quotation mark opens here and is never closed"),
    ("a.csv", 'text,label\n"x" y,z\n', ", line 2: it cannot be read (',' expected after '\"')"),
    (
        "a.csv",
        b"text,label\nfine,a\nno\x81,b\n",
        ", line 3: byte 20 is 0x81, which is not UTF-8 there: save the table as UTF-8, or name its",
    ),
    ("a.csv", b"text,label\nx\0,b\n", ", line 2: byte 12 is NUL, as in a binary file or in UTF-16"),
    ("a.csv", b"", ": it is empty, but a text is needed"),
    ("a.jsonl", '{"text": "a"}\n', ", line 1: there is no column 'label'; the columns are text"),
    ("a.jsonl", '{"text": "a", "label": null}\n', ", line 1: the label is empty"),
    (
        "a.jsonl",
        '{"text": ["a"], "label": 1}\n',
        ", line 1: column 'text' holds ['a'], but a text is needed",
    ),
    (
        "a.jsonl",
        '{"text": "a", "label": 1}\n{"text"\n',
        ", line 2: it is not JSON (Expecting ':' delimiter",
    ),
    ("a.jsonl", "[1, 2]\n", ", line 1: it is [1, 2], but an object is needed"),
    ("a.jsonl", "[" * 100_000, ", line 1: it is not JSON (maximum recursion depth"),
    ("a.txt", "text", " is not a table: its name must end in .csv, .tsv, .jsonl"),
]


@pytest.mark.parametrize(("name", "content", "sentence"), WRONG, ids=lambda each: str(each)[:30])
def test_rejects_invalid_tables(written, name, content, sentence):
    path = written(name, content)
    with pytest.raises(ValueError, match="^" + re.escape(f"{path}{sentence}")) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


def test_column_names_in_errors_are_escaped_and_shortened(written):
    path = written("a.csv", ",".join(f"c{i}" for i in range(30)) + ',"x\ny"\n' + "," * 30 + "\n")
    with pytest.raises(ValueError, match=r"the columns are c0, c1, .*, c19, \.\.\.: --text c0$"):
        read_table(path)
    path = written("a.csv", '"x\ny",z\n1,2\n')
    with pytest.raises(ValueError, match=re.escape(r"the columns are 'x\ny', z")):
        read_table(path)


def test_rejects_missing_file_and_folder(tmp_path):
    with pytest.raises(ValueError, match=r"a.csv: there is no such file or folder"):
        read_table(tmp_path / "a.csv")
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(ValueError, match=r"b.csv: it is a folder, but one file is needed"):
        read_table(tmp_path / "b.csv")
