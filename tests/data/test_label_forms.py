"""Label columns: one label, several labels, numbers, and hints at the task that fits."""

import json

import pytest

from clearformer.data.label_forms import (
    LABEL_SETS,
    NUMBERS,
    ONE_LABEL,
    labels_of,
    number_of,
    task_hint,
)
from clearformer.data.tables import read_table
from clearformer.table_options import TableOptions


@pytest.fixture
def read(tmp_path):
    def table(content, form, label="label", name="a.csv", **options):
        path = tmp_path / name
        path.write_text(content)
        return read_table(path, "text", label, TableOptions(**options), form=form)

    return table


def sets(table):
    return [labels_of(label) for label in table.labels]


@pytest.mark.parametrize("separator", [";", "|"])
def test_labels_are_split_at_the_separator_that_most_have(read, separator):
    content = f"text,label\na,x{separator} y\nb,y\nc,z{separator}x{separator}x\n"
    found = read(content, LABEL_SETS)
    assert sets(found) == [("x", "y"), ("y",), ("x", "z")]
    assert found.notes == (
        f"labels are separated by {separator!r}; --label-separator names another",
    )


def test_the_separator_can_be_named(read):
    content = 'text,label\na,"salt, pepper;sea"\nb,"salt, pepper"\nc,sea\n'
    found = read(content, LABEL_SETS, label_separator="semicolon")
    assert sets(found) == [("salt, pepper", "sea"), ("salt, pepper",), ("sea",)]
    assert found.notes == ()
    assert sets(read(content, LABEL_SETS, label_separator=","))[1] == ("pepper", "salt")


def test_lists_in_json_and_lists_as_pandas_writes_them(read):
    rows = [{"text": "a", "label": ["y", "x"]}, {"text": "b", "label": []}, {"text": "c"}]
    found = read("\n".join(map(json.dumps, rows)), LABEL_SETS, name="a.jsonl")
    assert sets(found) == [("x", "y"), ()]
    assert "1 row is without a label and was skipped" in found.notes[0]
    written = read("text,label\na,\"['x', 'y']\"\nb,[x]\nc,[]\n", LABEL_SETS)
    assert sets(written) == [("x", "y"), ("x",), ()]


def test_columns_of_zero_and_one(read):
    content = "text,x,y\na,1,0\nb,no,TRUE\nc,,0\n"
    assert sets(read(content, LABEL_SETS, "x,y")) == [("x",), ("y",), ()]
    with pytest.raises(ValueError, match=r"line 2: column 'y' holds '7', but 1 or 0 is needed"):
        read("text,x,y\na,1,7\n", LABEL_SETS, "x,y")
    with pytest.raises(ValueError, match=r"x, y as columns of 0 and 1 are --task multi-label"):
        read(content, ONE_LABEL, "x,y")


def test_texts_without_a_label_may_be_kept(read):
    content = "text,label\na,x;y\nb,\n"
    assert len(read(content, LABEL_SETS)) == 1
    assert sets(read(content, LABEL_SETS, unlabelled="keep")) == [("x", "y"), ()]
    with pytest.raises(ValueError, match="a classifier needs a label for each text: use skip"):
        read(content, ONE_LABEL, unlabelled="keep")


def test_spellings_of_single_labels_are_merged(read):
    found = read("text,label\na,Billing;x\nb,billing\nc,billing ;x\n", LABEL_SETS)
    assert sets(found) == [("billing", "x"), ("billing",), ("billing", "x")]
    assert any("1 label changed in spelling: 'Billing' to" in note for note in found.notes), found
    assert sets(read("text,label\na,A;x\nb,a\n", LABEL_SETS, normalize_labels=False)) == [
        ("A", "x"),
        ("a",),
    ]
    assert LABEL_SETS.matching(['["BILLING"]'], ("billing",)) == ['["billing"]']


def test_a_list_is_no_class(read):
    with pytest.raises(ValueError, match=r"holds \['x'\], but a classifier learns one label"):
        read('{"text": "a", "label": ["x"]}', ONE_LABEL, name="a.jsonl")


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3.0), (" -2.5 ", -2.5), ("1e3", 1000.0), ("2,5", 2.5), ("x", None), ("nan", None),
     ("inf", None), ("1_000", None), ("", None), ("1.000,5", None)],
)  # fmt: skip
def test_numbers_as_people_write_them(text, value):
    assert number_of(text) == value


def test_numbers_of_a_table(read):
    found = read('text,label\na,1.50\nb,"2,5"\nc,n/a\nd,\n', NUMBERS)
    assert found.labels == ("1.5", "2.5")
    assert found.notes == (
        "1 row is without a label and was skipped (the first: line 5; --unlabelled error stops "
        "there)",
        "1 number has a decimal comma, such as '2,5'",
        "1 row is without a number and was skipped (the first: line 4, 'n/a'; --unlabelled error "
        "stops there)",
    )


def test_signs_of_currencies_and_percent_are_left_out(read):
    found = read('text,label\na,"5,50 €"\nb,$3\nc,40%\n', NUMBERS)
    assert found.labels == ("5.5", "3.0", "40.0")
    assert "3 numbers have a sign such as that of '5,50 €', which is left out" in found.notes


def test_numbers_that_are_unclear_or_none(read):
    with pytest.raises(ValueError, match=r"'1,234' may be 1234 or 1\.234: write numbers"):
        read('text,label\na,"1,234"\nb,7\n', NUMBERS)
    with pytest.raises(ValueError, match=r"line 2: the label is 'good', as in 2 of 3 rows, but a"):
        read("text,label\na,good\nb,bad\nc,1\n", NUMBERS)
    with pytest.raises(ValueError, match=r"line 3: the label is 'n/a', as in 1 of 3 rows"):
        read("text,label\na,1\nb,n/a\nc,2\n", NUMBERS, unlabelled="error")


def test_hints_name_the_flag_and_change_nothing(read):
    prices = "".join(f"text {i},{i}.5\n" for i in range(30))
    found = read(f"text,label\n{prices}", ONE_LABEL)
    assert len(set(found.labels)) == 30
    assert "30 different ones in 30 rows" in found.notes[0]
    assert "--task regression predicts numbers" in found.notes[0]
    assert "--task multi-label" in task_hint(["a;b", "a", "b", "b;c", "c"])


@pytest.mark.parametrize(
    "labels",
    [["1", "2", "3", "4", "5"], ["health, beauty", "food"], ["a", "b"], [], ["1.0", "2.0"],
     ["no, thanks", "yes, please"]],
)  # fmt: skip
def test_usual_classes_get_no_hint(labels):
    assert task_hint(labels) is None
