"""Profile of a table (tests/cli/test_data.py prints one)."""

import pytest

from clearformer.tasks.table_profile import profile_table


@pytest.fixture
def path(tmp_path):
    rows = [f"text number {i} of many {'word ' * (i % 10)},{'ab'[i % 2]}" for i in range(60)]
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "\n".join(rows))
    return str(path)


def test_parts_add_up(path):
    found = profile_table(path, validation_fraction=0.2)
    assert found.classes == {"a": (24, 6), "b": (24, 6)}
    assert (found.rows, found.texts, len(found.lengths)) == (60, 60, 60)
    assert [each.name for each in found.columns] == ["text", "label"]
    assert found.document()["classes"]["a"] == {"training": 24, "validation": 6}


def test_near_leaks_are_noticed(path):
    notes = " ".join(profile_table(path).notes)
    assert "differ from training texts only in case, digits or punctuation" in notes


def test_what_would_be_cut(path):
    assert "60 of 60 texts have more than 2 tokens" in " ".join(profile_table(path, length=2).notes)


def test_table_that_cannot_be_split(tmp_path):
    (tmp_path / "b.csv").write_text("text,label\none,a\ntwo,b\n")
    found = profile_table(str(tmp_path / "b.csv"))
    assert any(note.startswith("it cannot be split:") for note in found.notes)
