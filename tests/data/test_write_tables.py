"""Writing tables by file extension, and reading them back."""

import csv
import json
from pathlib import Path

import pytest

from clearformer.data import read_texts, write_table
from clearformer.data.tables import Pairs
from clearformer.data.write_tables import (
    require_extension,
    require_fields,
    require_lines_or_table,
    write_translations,
)

ROWS = [
    {"text": 'one, "two"', "label": "a", "shares": {"a": 0.75, "b": 0.25}},
    {"text": "drei\u2028\x85é", "label": "b", "shares": {"a": 0.1, "b": 0.9}},
]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".json", ".JSONL"])
def test_write_and_read_round_trip(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    write_table(path, ROWS)
    assert read_texts(path).texts == tuple(row["text"] for row in ROWS)


def test_file_contents_of_each_format(tmp_path):
    for ending in ("csv", "tsv", "json", "jsonl"):
        write_table(tmp_path / f"x.{ending}", ROWS)
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        assert next(csv.DictReader(file)) == {
            "text": 'one, "two"', "label": "a", "a": "0.75", "b": "0.25",
        }  # fmt: skip
    first = (tmp_path / "x.tsv").read_text(encoding="utf-8").split("\n")[:2]
    assert first == ["text\tlabel\ta\tb", 'one, "two"\ta\t0.75\t0.25']
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == ROWS
    lines = (tmp_path / "x.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == ROWS


def test_rejects_tab_or_line_break_in_tsv(tmp_path):
    path = tmp_path / "x.tsv"
    with pytest.raises(
        ValueError, match=r"x.tsv cannot contain 'a\\tb', which has a tab or a line br"
    ):
        write_table(path, [{"text": "a\tb"}])
    assert not path.exists()
    require_fields(tmp_path / "x.csv", ["a\tb\n"])


def test_rejects_unsupported_extensions():
    require_extension(Path("x.CSV"))
    for name in ("x", "x.txt", "x.parquet", "x.csv.gz"):
        with pytest.raises(ValueError, match=rf"^{name} must end in .csv, .tsv, .jsonl or .json$"):
            require_extension(Path(name))
    require_lines_or_table(Path("out.de"))
    with pytest.raises(
        ValueError, match=r"x.xlsx: a .xlsx file cannot be written: use .csv, .tsv, "
    ):
        require_lines_or_table(Path("x.xlsx"))


def test_write_translations(tmp_path):
    pairs = Pairs("p", ("one", "two"), ("eins", "zwei"))
    write_translations(tmp_path / "x.de", pairs, ["uno", "dos"])
    assert (tmp_path / "x.de").read_text() == "uno\ndos\n"
    write_translations(tmp_path / "x.jsonl", pairs, ["uno", "dos"])
    first = json.loads((tmp_path / "x.jsonl").read_text().splitlines()[0])
    assert first == {"source": "one", "target": "eins", "translation": "uno"}
