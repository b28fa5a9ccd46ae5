"""F34 to F40: data that is truncated, changed, empty, wrongly encoded, or of another model."""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest

from clearformer.runs import checkpoint
from clearformer.selftest.toy_run import last_record, newest_step
from clearformer.training import step

SOURCE = Path(checkpoint.__file__).parents[1]


def test_f34_no_worker_processes_load_data():
    for path in SOURCE.rglob("*.py"):
        if path.parent.name != "selftest" and path.name != "launch.py":  # which starts ranks
            assert not re.search(r"DataLoader|os\.fork\(|multiprocessing", path.read_text()), path


def test_f35_truncated_token_file_is_reported(train, place, refused, monkeypatch):
    take = step.train_step

    def cut_then_take(*arguments):
        for path in (place / "cache").rglob("*.bin"):
            os.truncate(path, 8)
        return take(*arguments)

    monkeypatch.setattr(step, "train_step", cut_then_take)
    refused(train(steps=6), "the token file has 8 bytes, but", "delete it")
    assert last_record(place / "run")["exit"] == 2
    monkeypatch.undo()
    assert newest_step(place / "run") == 4  # the step in which it was cut is saved


def test_f35_rejects_other_data_unless_allowed(train, place, refused):
    changed = place / "changed.txt"
    changed.write_text((place / "text.txt").read_text() + "more words than there were. " * 20)
    refused(train("--data", str(changed), steps=5), "the data is not the one", "--allow-changed-d")
    outcome = train("--data", str(changed), "--allow-changed-data", steps=5)
    assert outcome.code == 0, outcome.err
    assert "note: the data has changed since step 3" in outcome.err


def replace_keeping_status(path, content):
    """As `cp -p`, `touch -r` or rsync may: another text with the size and the date of the old."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_f35_replaced_text_of_same_size_and_date_is_detected(train, command, place, refused):
    own, copy = place / "own.txt", place / "copy.txt"
    old = (place / "text.txt").read_bytes()
    new = old.swapcase()
    own.write_bytes(old)
    assert train("--data", own, folder="own").code == 0

    def evaluated(path):
        outcome = command("evaluate", place / "own", "--data", path)
        assert outcome.code == 0, outcome.err
        return re.search(r"bits per byte +([0-9.]+)", outcome.out)[1]

    before = evaluated(own)
    replace_keeping_status(own, new)
    copy.write_bytes(new)
    assert evaluated(own) == evaluated(copy) != before
    refused(
        train("--data", own, folder="own", steps=5), "the data is not the one", "--allow-changed-d"
    )
    copy.write_bytes(old)  # the same content in another file is the same data
    outcome = train("--data", copy, folder="own", steps=5)
    assert outcome.code == 0, outcome.err
    assert newest_step(place / "own") == 5


def test_f35_evaluate_reports_changed_text(train, command, place):
    own = place / "own.txt"
    own.write_bytes((place / "text.txt").read_bytes())
    assert train("--data", own, folder="own").code == 0
    note = "note: the validation text is not the one of the training"
    assert note not in command("evaluate", place / "own").out
    replace_keeping_status(own, own.read_bytes().swapcase())
    outcome = command("evaluate", place / "own")
    assert outcome.code == 0, outcome.err
    assert note in outcome.out


def test_f35_forged_token_description_does_not_change_metrics(train, command, place):
    own = place / "own.txt"
    own.write_bytes((place / "text.txt").read_bytes())

    def evaluated():
        outcome = command("evaluate", place / "run", "--data", own)
        assert outcome.code == 0, outcome.err
        return outcome.out

    before = evaluated()
    for forge in (
        lambda text: json.dumps({**json.loads(text), "text_bytes": 100 * len(own.read_bytes())}),
        lambda text: "[" * 100_000,
    ):
        for about in (place / "cache/clearformer/tokens").glob("*.json"):
            about.write_text(forge(about.read_text()))
        assert evaluated() == before


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "it is empty, but a text is needed"), (b"x", "bytes, but"), (b"x" * 40, "bytes, but")],
)
def test_f36_rejects_too_little_text_before_building_model(command, place, refused, content, words):
    (place / "little.txt").write_bytes(content)
    refused(command("train", "--data", place / "little.txt", "--out", place / "x"), words)
    assert not (place / "x/metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("caf\xe9 ".encode("latin-1") * 300, "byte 3"),
        ("wide ".encode("utf-16") * 300, "it is UTF-16"),
        (b"nothing \0 at all " * 300, "byte 8 is NUL"),
        (b"half \xed\xa0\x80 " * 300, "byte 5"),
    ],
)
def test_f37_rejects_other_encoding_with_position(train, place, refused, content, words):
    path = place / "strange.txt"
    path.write_bytes(content)
    flags = ("--data", str(path), "--data.tokenizer", "characters")
    refused(train(*flags, folder="x"), words, "UTF-8")


def test_f37_accepts_bom_and_crlf(train, place):
    path = place / "strange.txt"
    path.write_bytes(b"\xef\xbb\xbf" + b"line\r\n and \xc3\xa9\r\n" * 100)
    outcome = train("--data", str(path), "--data.tokenizer", "characters", folder="x", steps=1)
    assert outcome.code == 0, outcome.err


def test_f38_rejects_tokenizer_of_other_model(command, place, refused):
    folder = place / "run/checkpoints/step-3"
    other = json.dumps({"kind": "characters", "characters": "abc"})
    (folder / "tokenizer.json").write_text(other)
    refused(command("generate", folder, "x"), "tokenizer.json")
    # Even with corrected hashes.
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"]
    digest = hashlib.sha256(other.encode()).hexdigest()
    manifest["files"]["tokenizer.json"] = {"bytes": len(other), "sha256": digest}
    (folder / "manifest.json").write_text(checkpoint.sealed(manifest))
    refused(command("generate", folder, "x"), "the tokenizer is not the one it was trained with")


@pytest.fixture
def classifier(place, command):
    table = place / "table.csv"
    rows = [f"good words {i},pos\nbad words {i},neg" for i in range(12)]
    table.write_text("text,label\n" + "\n".join([*rows, f"{'long ' * 200_000},pos"]))
    size = "--layers 1 --width 16 --heads 2 --hidden 32 --length 12 --batch-size 8 --threads 1"
    flags = f"{size} --steps 2 --evaluations 1 --precision float32 --quiet"
    words = ["train", "classifier", "--data", table, "--out", place / "labels", *flags.split()]
    return lambda *more: command(*words, *more)


def test_f39_f40_unseen_labels_and_texts_longer_than_the_context(
    classifier, command, place, refused
):
    outcome = classifier()
    assert outcome.code == 0, outcome.err
    assert "are longer than 12 tokens and were cut" in outcome.err
    other = place / "other.csv"
    other.write_text("text,label\ngood,pos\nodd,blue\nbad,neg\n")
    said = refused(command("evaluate", place / "labels", "--data", other), "'blue'", "'neg', 'pos'")
    assert "--unknown-label skip" in said
    outcome = command("evaluate", place / "labels", "--data", other, "--unknown-label", "skip")
    assert outcome.code == 0, outcome.err
    assert "note: 1 rows with unknown labels are left out" in outcome.out
    assert "on 2 texts" in outcome.out
    other.write_text("text,label\na,pos\nb,pos\n")
    refused(classifier("--out", place / "one", "--data", other), "at least two labels")
