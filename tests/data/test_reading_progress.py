"""Progress while a table is read: counted calls, and none for small tables."""

import pytest

from clearformer.data import reading_progress
from clearformer.data.reading_progress import as_lines, counted, listening
from clearformer.data.tables import read_table


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(reading_progress, "EVERY", 20)
    monkeypatch.setattr(reading_progress, "LINE_EVERY", 40)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"t{i},x{i % 2}\n" for i in range(65)))
    return path


def test_a_listener_hears_of_the_rows_while_they_are_read(table):
    heard = []
    with listening(lambda *each: heard.append(each)):
        found = read_table(table)
    assert len(found) == 65
    assert heard == [(str(table), n, False) for n in (20, 40, 60)] + [(str(table), 65, True)]


def test_rows_are_streamed_between_the_calls():
    heard, taken = [], 0
    with listening(lambda name, count, done: heard.append((count, taken))):
        for _ in counted("t", range(45)):
            taken += 1
    assert heard == [(20, 20), (40, 40), (45, 45)], "it is told before all rows have been read"


def test_nobody_is_told_of_a_small_table_or_outside_the_block(table, tmp_path):
    heard = []
    small = tmp_path / "b.csv"
    small.write_text("text,label\na,x\nb,y\n")
    with listening(lambda *each: heard.append(each)):
        read_table(small)
    read_table(table)
    assert heard == []


def test_an_outer_listener_can_be_kept(table):
    outer, inner = [], []
    with (
        listening(lambda *each: outer.append(each)),
        listening(lambda *each: inner.append(each), unless_set=True),
    ):
        read_table(table)
    assert outer
    assert not inner


def test_a_log_gets_few_lines(table):
    lines = []
    with listening(as_lines(lines.append)):
        read_table(table)
    assert lines == [f"reading {table}: 40 rows so far"]


def test_the_command_line_shows_it_in_a_log(table, clearformer):
    done = clearformer("data", str(table))
    assert f"clearformer: reading {table}: 40 rows so far" in done.err
    assert "so far" not in done.out
