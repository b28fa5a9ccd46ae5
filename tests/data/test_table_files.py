"""Every format of a table, as strangers write it."""

import datetime
import json
import re

import pytest

from clearformer.data.table_files import MAX_COLUMNS, _csv_lines, open_table
from clearformer.data.tables import all_records, read_table
from clearformer.table_options import TableFormat, TableOptions

HELPFUL = TableOptions()
ROWS = [{"text": "café au lait", "label": "food"}, {"text": "a; b, c", "label": "list"}]


@pytest.fixture
def written(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def read(path, **options):
    """The rows and the notes of a table."""
    file = open_table(path, TableFormat(**options))
    return [record for _, record in file.records], file.notes


def csv_of(separator):
    return separator.join(("text", "label")) + "\n" + "".join(
        f'"{row["text"]}"{separator}{row["label"]}\n' for row in ROWS
    )  # fmt: skip


@pytest.mark.parametrize(
    ("separator", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "pipes")]
)
def test_another_separator_is_found_and_noted(written, separator, word):
    rows, notes = read(written("a.csv", csv_of(separator)))
    assert rows == ROWS
    assert f"separated by {word}, by its header; --delimiter" in notes[0]
    name = {"\t": "tab"}.get(separator, separator)
    assert read(written("a.csv", csv_of(separator)), delimiter=name) == (ROWS, [])


def test_commas_inside_quotes_of_a_header_do_not_count(written):
    rows, _ = read(written("a.csv", '"a, b, c";label\n1;2\n'))
    assert rows == [{"a, b, c": "1", "label": "2"}]


def test_the_line_that_excel_writes(written):
    rows, notes = read(written("a.csv", "sep=;\r\n" + csv_of(";").replace("\n", "\r\n")))
    assert rows == ROWS
    assert notes == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_line_breaks_in_fields(written, end):
    rows, _ = read(written("a.csv", f'text,label{end}"one{end}two",x{end}{end}three,y'))
    assert rows == [{"text": f"one{end}two", "label": "x"}, {"text": "three", "label": "y"}]


@pytest.mark.parametrize(
    ("encoding", "note"),
    [
        ("utf-8-sig", None),
        ("utf-16", "is UTF-16, by its first bytes"),
        ("utf-32", "is UTF-32, by its first bytes"),
        ("cp1252", "is not UTF-8 (byte 15 is 0xE9, which is not UTF-8 there) and was read as "),
    ],
)
def test_encodings_are_found_and_noted(written, encoding, note):
    rows, notes = read(written("a.csv", csv_of(",").encode(encoding)))
    assert rows == ROWS
    assert [note in each for each in notes] == ([True] if note else [])


def test_a_named_encoding(written):
    text = "text,label\n日本語,x\n"
    path = written("a.csv", text.encode("shift_jis"))
    assert read(path, encoding="shift_jis") == ([{"text": "日本語", "label": "x"}], [])
    with pytest.raises(ValueError, match=re.escape("it is not utf-8 (invalid start byte): name")):
        read(path, encoding="utf-8")
    with pytest.raises(ValueError, match="the encoding is 'klingon', which Python does not know"):
        read(path, encoding="klingon")
    with pytest.raises(ValueError, match="the encoding is 'base64', which Python does not know"):
        read(path, encoding="base64")


def test_a_picture_is_no_table(written):
    with pytest.raises(ValueError, match="save the table as UTF-8, or name its encoding"):
        read(written("a.csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0"))
    with pytest.raises(ValueError, match="a NUL, as in a binary file or in another encoding"):
        read(written("a.csv", b"text,label\na\0b,c\n"), encoding="cp1252")


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(ROWS),
        "\n".join(json.dumps(row) for row in ROWS),
        json.dumps({"text": [r["text"] for r in ROWS], "label": [r["label"] for r in ROWS]}),
        json.dumps({name: {str(i): r[name] for i, r in enumerate(ROWS)} for name in ROWS[0]}),
        json.dumps({"data": ROWS}),
    ],
    ids=["list", "lines", "columns", "pandas", "inside an object"],
)
def test_shapes_of_json(written, content):
    assert read(written("a.json", content))[0] == ROWS


def test_columns_of_json_are_aligned_by_key(written):
    content = '{"text": {"0": "a", "1": "b"}, "label": {"1": "y", "0": "x"}}'
    rows, _ = read(written("a.json", content))
    assert rows == [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    content = '{"text": {"0": "a", "1": "b"}, "label": {"1": "y", "2": "x"}}'
    with pytest.raises(ValueError, match="but a list of texts or of objects is needed"):
        read(written("b.json", content))


def test_ndjson_and_missing_values(written):
    path = written("a.ndjson", '{"text": "a", "label": NaN}\n{"text": "b"}\n{"label": 1}')
    options = TableOptions()
    with pytest.raises(ValueError, match="none of its 3 rows can be used"):
        read_table(path, options=options)


def test_parquet(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    rows = [{**row, "n": n, "day": datetime.date(2024, 5, 6)} for n, row in enumerate(ROWS)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert read(path)[0] == rows
    assert read_table(path, "text", "n").labels == ("0", "1")
    assert read_table(path, "text", "day").labels == ("2024-05-06",) * 2
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ValueError, match="it cannot be read as Parquet"):
        read(path)


def test_xlsx(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    path = tmp_path / "a.xlsx"
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "tickets"
    for row in [(), ("text", "label", None), *((r["text"], i) for i, r in enumerate(ROWS)), ()]:
        sheet.append(row)
    book.create_sheet("notes").append(("text", "label"))
    book.save(path)
    rows, notes = read(path)
    assert rows == [{"text": "café au lait", "label": "0"}, {"text": "a; b, c", "label": "1"}]
    assert "has 2 sheets, and the first, tickets, is read; --sheet names another: notes" in notes[0]
    assert read(path, sheet="notes") == ([], [])
    with pytest.raises(ValueError, match="there is no sheet 'x': one of tickets, notes"):
        read(path, sheet="x")
    path.write_bytes(b"no zip")
    with pytest.raises(ValueError, match="it cannot be read as a spreadsheet"):
        read(path)


def test_titles_above_a_table_in_a_sheet(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [("Tickets of 2024",), (), ("text", "label"), ("a", "x")]:
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    rows, notes = read(tmp_path / "a.xlsx")
    assert rows == [{"text": "a", "label": "x"}]
    assert "1 row above the header of" in notes[0]


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    import sys

    for name, library in (("a.parquet", "pyarrow"), ("b.xlsx", "openpyxl")):
        monkeypatch.setitem(sys.modules, library, None)
        (tmp_path / name).write_bytes(b"PK\x05\x06" + bytes(18))
        with pytest.raises(ValueError, match=rf"read by {library}: pip install 'clearformer\[tab"):
            open_table(tmp_path / name)


def test_rows_of_another_width(written):
    path = written("a.csv", "text,label\na,b,,\nc,d,e\nf\ng,h\n")
    with pytest.raises(ValueError, match=r"line 3: it has 3 fields.*--bad-rows skip"):
        read(path)
    rows, notes = read(path, bad_rows="skip")
    assert rows == [{"text": "a", "label": "b"}, {"text": "g", "label": "h"}]
    assert notes == [
        "2 rows have too many or too few fields and were skipped (--bad-rows error stops at them)"
    ]


def test_columns_without_a_name_or_with_the_same(written):
    path = written("a.csv", ",text,x,x,label\n1,a,2,3,b\n")
    columns, records = all_records(path)
    assert columns == ("column 1", "text", "x", "x (column 4)", "label")
    assert records[0]["x (column 4)"] == "3"
    assert read_table(path).labels == ("b",)


def test_a_million_columns(written):
    path = written("a.csv", "a," * MAX_COLUMNS + "b\n1\n")
    with pytest.raises(ValueError, match="it has 10,001 columns, but at most 10,000 are read"):
        read(path)


def test_a_file_that_grows_while_it_is_read(written):
    path = written("a.csv", "text,label\n" + "a,b\n" * 10)
    records = open_table(path).records
    next(records)
    with path.open("a") as file:
        file.write("more,b\n")
    with pytest.raises(ValueError, match="it was changed while it was being read"):
        list(records)


def test_header_alone_and_repeated_columns_in_other_capitals(written):
    with pytest.raises(ValueError, match="there are no rows below the header"):
        read_table(written("a.csv", "Text,Label\n"))
    with pytest.raises(ValueError, match="two columns have the same name, 'Text'"):
        read_table(written("a.csv", "Text,Text,Label\na,b,c\n"))
    with pytest.raises(ValueError, match=r"the columns are <html>; check --delimiter$"):
        read_table(written("a.csv", "<html>\n<body>\n"))


@pytest.mark.parametrize("cut", range(1, 9))
def test_lines_do_not_depend_on_where_chunks_end(cut):
    text = "a,b\r\nc\rd\n\n\r\re\r\n\nf"
    chunks = [text[start : start + cut] for start in range(0, len(text), cut)]
    lines = ["a,b\r\n", "c\r", "d\n", "\n", "\r", "\r", "e\r\n", "\n", "f"]
    assert list(_csv_lines(chunks)) == lines


def test_line_without_an_end_takes_linear_time():
    """It is joined once; searched again with each chunk, it would take hours."""
    (line,) = _csv_lines("x" * 65_536 for _ in range(200))
    assert len(line) == 200 * 65_536


def test_a_quotation_mark_that_is_never_closed_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,label\nfine,x\n"open,y\nmore,x\n')
    with pytest.raises(ValueError, match="line 3: a quotation mark opens here and is never closed"):
        list(open_table(path).records)


def test_rows_beside_other_values_of_an_object(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"meta": {"n": 1}, "rows": [{"text": "a"}, {"text": "b"}]}')
    file = open_table(path)
    assert [record["text"] for _, record in file.records] == ["a", "b"]
    assert file.notes == [f"{path}: the rows are those of 'rows'"]


def test_a_missing_column_of_a_book_names_its_other_sheets(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["read me"])
    book.active.append(["please"])
    book.create_sheet("tickets").append(["text", "label"])
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(ValueError, match="are read me; --sheet names another sheet: tickets"):
        read_table(tmp_path / "a.xlsx")
