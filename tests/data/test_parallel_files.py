"""The user's own parallel texts, and messages for files that do not match."""

import gzip
import re

import pytest

from clearformer.data import read_pairs


@pytest.fixture
def files(tmp_path):
    def write(one, other):
        (tmp_path / "a.en").write_text(one)
        (tmp_path / "a.de").write_text(other)
        return f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}"

    return write


def test_two_files_match_line_by_line(files):
    pairs, notes = read_pairs(files("a dog\r\n the  cat \n", "ein Hund\ndie Katze"))
    assert pairs.sources == ("a dog", "the  cat")
    assert pairs.targets == ("ein Hund", "die Katze")
    assert notes == ()


def test_reads_gzip_files(tmp_path):
    for name, text in (("a.en.gz", "one\ntwo\n"), ("a.de.gz", "eins\nzwei\n")):
        with gzip.open(tmp_path / name, "wt") as file:
            file.write(text)
    pairs, _ = read_pairs(f"{tmp_path / 'a.en.gz'}, {tmp_path / 'a.de.gz'}")
    assert pairs.targets == ("eins", "zwei")


def test_unicode_line_separator_does_not_end_line(files):
    pairs, _ = read_pairs(files("a\u2028b\x0bc\nd\n", "x\ny\n"))
    assert pairs.sources == ("a\u2028b\x0bc", "d")


def test_line_count_mismatch_names_first_unpaired_line(files):
    with pytest.raises(
        ValueError, match=r"a.en has 3 lines and .*a.de 2, but they must match"
    ) as e:
        read_pairs(files("a\nb\nthe third\n", "x\ny\n"))
    assert re.search("without a partner is line 3 of .*a.en, 'the third'$", str(e.value))


def test_line_count_mismatch_names_first_empty_line(files):
    with pytest.raises(ValueError, match=r"a.en has 3 lines and .*a.de 4") as problem:
        read_pairs(files("a\nb\nc\n", "x\n\ny\nz\n"))
    place = "line 2 is the first that is empty in .*a.de and not in .*a.en$"
    assert re.search(place, str(problem.value))


def test_empty_lines_are_skipped_and_reported(files):
    pairs, notes = read_pairs(files("a\n\nc\nd\n", "x\ny\n \nz\n"))
    assert (pairs.sources, pairs.targets) == (("a", "d"), ("x", "z"))
    assert notes == ("2 of 4 pairs have an empty side and are left out (the first: 2)",)
    with pytest.raises(ValueError, match="every pair has an empty side"):
        read_pairs(files("a\n\n", "\nb\n"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.tsv", "source\tother\ttarget\none\t1\teins\ntwo\t2\tzwei\n"),
        ("p.csv", 'target,source\neins,one\n"zwei",two\n'),
        (
            "p.jsonl",
            '{"source": "one", "target": "eins"}\n{"source": "two", "target": "zwei"}\n',
        ),
    ],
)
def test_reads_pairs_from_tables(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    pairs, notes = read_pairs(str(tmp_path / name))
    assert (pairs.sources, pairs.targets) == (("one", "two"), ("eins", "zwei"))
    assert notes == ()


def test_columns_are_selected_by_name(tmp_path):
    (tmp_path / "p.tsv").write_text("en\tde\none\teins\n")
    pairs, notes = read_pairs(str(tmp_path / "p.tsv"), "de", "en")
    assert (pairs.sources, pairs.targets, notes) == (("eins",), ("one",), ())
    (tmp_path / "p.csv").write_text("en,de\none,eins\n")
    with pytest.raises(ValueError, match="there is no column 'source'; the columns are en, de"):
        read_pairs(str(tmp_path / "p.csv"))


def test_tsv_may_have_no_header(tmp_path):
    path = tmp_path / "p.tsv"
    path.write_text("one\teins\ntwo\tzwei\n")
    pairs, notes = read_pairs(str(path))
    assert pairs.sources == ("one", "two")
    assert "so its first line is a pair: 'one' -> 'eins'" in notes[0]
    # An empty side is one of a pair, as in two files; lines are counted as an editor does.
    path.write_text("one\teins\r\n\ntwo\t\n")
    pairs, notes = read_pairs(str(path))
    assert (pairs.sources, pairs.targets) == (("one",), ("eins",))
    assert "1 of 2 pairs have an empty side" in notes[1]
    path.write_text("one\teins\n\n\ntwo\tzwei\tdrei\n")
    with pytest.raises(ValueError, match="line 4: it has 3 fields, but a pair has 2"):
        read_pairs(str(path))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing.tsv", "nothing.tsv: there is no such file"),
        ("nothing.en,nothing.de", "nothing.en: there is no such file"),
        ("a.txt", "pairs are read from two files, as in train.en,train.de"),
        ("a,b,c", "pairs are read from two files"),
    ],
)
def test_rejects_missing_sources(source, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match=message):
        read_pairs(source)
