"""The baseline of scikit-learn, on the same split."""

import sys

import pytest

from clearformer.data.tables import Table
from clearformer.tasks.baseline import MAX_BYTES, baseline

TEXTS = tuple(f"a {word} film {i}" for i in range(20) for word in ("lovely", "awful"))
LABELS = ("good", "bad") * 20


def test_easy_texts_are_told_apart():
    pytest.importorskip("sklearn")
    found = baseline(Table("t", TEXTS, LABELS), Table("v", TEXTS[:6], LABELS[:6]))
    assert (found.accuracy, found.macro_f1, found.texts) == (1.0, 1.0, 6)
    assert "reach accuracy 1.0000, macro F1 1.0000 on the same 6 validation texts" in str(found)


def test_wrong_labels_are_counted():
    pytest.importorskip("sklearn")
    found = baseline(
        Table("t", TEXTS, LABELS), Table("v", TEXTS[:4], ("good", "bad", "new", "bad"))
    )
    assert found.accuracy == 0.75


def test_where_there_is_none(monkeypatch):
    table = Table("t", TEXTS, LABELS)
    assert baseline(Table("t", ("x" * MAX_BYTES, "yy"), ("a", "b")), table) is None
    assert baseline(Table("t", ("?", "!"), ("a", "b")), table) is None  # no words
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    assert baseline(table, table) is None
