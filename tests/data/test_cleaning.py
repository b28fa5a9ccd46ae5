"""Rows that need a decision: each is counted, and the flag for the other choice is named."""

import pytest

from clearformer.data.cleaning import matching_labels, spellings
from clearformer.data.splits import split_rows
from clearformer.data.tables import Table, read_table
from clearformer.table_options import TableOptions


@pytest.fixture
def table(tmp_path):
    def read(content, **options):
        path = tmp_path / "a.csv"
        path.write_text(content)
        return read_table(path, options=TableOptions(**options))

    return read


def test_a_clean_table_has_no_notes(table):
    assert table("text,label\na,x\nb,y\n").notes == ()


def test_unlabelled_rows(table):
    content = "text,label\na,x\nb,\nc,  \nd,y\n"
    found = table(content)
    assert found.texts == ("a", "d")
    assert found.rows == (0, 3)
    assert found.notes == (
        "2 rows are without a label and were skipped (the first: line 3; --unlabelled error stops "
        "there)",
    )
    with pytest.raises(ValueError, match=r"line 3: the label is empty, as in 2 of 4 rows.*skip"):
        table(content, unlabelled="error")


def test_empty_texts(table):
    content = "text,label\n ,x\nb,x\n"
    found = table(content)
    assert found.texts == ("b",)
    assert found.notes[0].startswith("1 row is without a text and was skipped (the first: line 2;")
    assert table(content, empty="keep").texts == (" ", "b")
    with pytest.raises(ValueError, match=r"line 2: the text is empty.*--empty skip"):
        table(content, empty="error")


def test_labels_that_differ_in_spelling(table):
    content = "text,label\na,Billing\nb,billing \nc,Billing\nd,other  one\ne,Other one\n"
    found = table(content)
    assert found.labels == ("Billing", "Billing", "Billing", "other  one", "other  one")
    assert "2 labels changed in spelling: 'billing ' to 'Billing'" in found.notes[0]
    assert "--no-normalize-labels" in found.notes[0]
    assert len(set(table(content, normalize_labels=False).labels)) == 4


def test_numbers_of_spreadsheets():
    assert spellings(["1", "1.0", "2", "2"]) == {"1": "1", "1.0": "1", "2": "2"}
    assert spellings(["1", "1.0", "one"]) == {"1": "1", "1.0": "1.0", "one": "one"}
    assert spellings(["0.5", "1"]) == {"0.5": "0.5", "1": "1"}


def test_labels_are_matched_to_those_of_a_model():
    assert matching_labels(["POS", " neg", "what"], ["neg", "pos"]) == ["pos", "neg", "what"]
    assert matching_labels(["1.0", "3"], ["1", "2"]) == ["1", "3"]
    assert matching_labels(["a"], ["A", "a"]) == ["a"]
    assert matching_labels(["á"], ["Á", "a"]) == ["Á"]


def test_duplicates(table):
    content = "text,label\na,x\na ,x\na,y\nb,y\n"
    found = table(content)
    assert len(found) == 4
    assert found.notes == (
        "1 row repeats the text and label of an earlier row and was kept, all in the same part "
        "(--duplicates drop leaves them out)",
        "1 text has different labels in different rows: no model can get all of them right",
    )
    assert table(content, duplicates="drop").texts == ("a", "a", "b")


def test_nothing_is_left(table):
    with pytest.raises(ValueError, match="none of its 2 rows can be used: 2 rows are without"):
        table("text,label\na,\nb,\n")


RARE = Table("t", ("a", "b", "c", "d", "d"), ("x", "x", "y", "z", "z"))


def test_rare_classes():
    kept = RARE.without_rare("keep")
    assert kept == RARE
    assert kept.notes == (
        "2 classes have a single text and were kept in training alone, so nothing measures them: "
        "'y', 'z' (--rare drop)",
    )
    training, validation = split_rows(kept, 0.1, 0, keep_rare=True)
    assert len(validation) == 1
    assert {"y", "z"} <= set(training.labels)
    dropped = RARE.without_rare("drop")
    assert dropped.labels == ("x", "x")
    assert dropped.notes[0].startswith("2 classes have a single text and were left out: 'y', 'z'")
    with pytest.raises(ValueError, match=r"2 classes have a single text .*--rare keep"):
        RARE.without_rare("error")


def test_only_rare_classes():
    table = Table("t", ("a", "b"), ("x", "y"))
    assert table.without_rare("drop") == table
    with pytest.raises(ValueError, match="no label has two different texts"):
        split_rows(table, 0.1, 0, keep_rare=True)
