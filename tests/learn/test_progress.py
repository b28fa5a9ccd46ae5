"""Progress on disk: saved, and never a reason to fail."""

import json

import pytest

from clearformer.learn import progress
from clearformer.learn.progress import Record


def test_progress_is_saved(data_home):
    assert progress.load() == {}
    progress.save("1.2", Record(attempts=1))
    progress.save("1.2", Record(attempts=2, solved=True))
    progress.save("1.3", Record(hints=1))
    assert progress.path() == data_home / "clearformer" / "learn.json"
    assert progress.load() == {"1.2": Record(2, 0, True), "1.3": Record(0, 1, False)}


def test_default_path_is_in_home_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert progress.path() == tmp_path / ".local/share/clearformer/learn.json"


def test_unwritable_folder_is_not_an_error(data_home):
    data_home.write_text("a file where the folder should be")
    progress.save("1.1", Record(attempts=1))
    assert progress.of("1.1") == Record()


@pytest.mark.parametrize(
    ("entry", "record"),
    [
        ({"attempts": "many", "hints": -4, "solved": "yes"}, Record()),
        ([1, 2], Record()),
        ({"attempts": 3, "solved": True, "mood": "good"}, Record(3, 0, True)),
    ],
)
def test_invalid_records_are_tolerated(data_home, entry, record):
    progress.path().parent.mkdir(parents=True)
    progress.path().write_text(json.dumps({"1.1": entry}))
    assert progress.load() == {"1.1": record}


@pytest.mark.parametrize(
    ("text", "said"), [("[]", "is not a valid progress file"), ("{", "not valid JSON")]
)
def test_rejects_damaged_file(text, said):
    progress.path().parent.mkdir(parents=True)
    progress.path().write_text(text)
    with pytest.raises(ValueError, match=said):
        progress.load()
