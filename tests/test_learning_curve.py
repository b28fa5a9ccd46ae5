"""Learning curves: the same run on growing shares of the data."""

import re

import pytest

from clearformer.data.splits import share_of_rows
from clearformer.data.tables import Table
from clearformer.learning_curve import learning_curve

TINY = {"length": 16, "layers": 1, "width": 16, "heads": 2, "model.hidden": 32, "batch_size": 4,
        "threads": 1, "steps": 3, "evaluations": 1, "quiet": True}  # fmt: skip


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = [f"{word} film {i},{word}" for i in range(40) for word in ("good", "bad")]
    (tmp_path / "a.csv").write_text("text,label\n" + "\n".join(rows))


def test_smaller_shares_are_part_of_larger_ones():
    labels = ("a",) * 20 + ("b",)
    table = Table("t", tuple(f"text {i}" for i in range(21)), labels)
    small, large = (set(share_of_rows(table, share, 0).texts) for share in (0.1, 0.5))
    assert len(small) == 3  # of each label at least one
    assert small < large
    assert share_of_rows(table, 1.0, 0) is table


def test_every_share_is_a_run_with_the_same_validation_part(tmp_path):
    points = learning_curve("classifier-imdb", data="a.csv", shares=(1, 0.25), out="curve", **TINY)
    assert [each.share for each in points] == [0.25, 1]
    assert all(each.metric == "accuracy" and 0 <= each.value <= 1 for each in points)
    assert (tmp_path / "curve/learning-curve.png").stat().st_size > 1000
    cards = [(each.folder / "README.md").read_text() for each in points]
    assert len({re.search(r"(\d+) texts", card)[0] for card in cards}) == 1


def test_command_prints_the_curve(clearformer):
    flags = "--length 16 --layers 1 --width 16 --heads 2 --model.hidden 32 --batch-size 4 --quiet"
    done = clearformer("train", "modern-tiny", "--data", "a.csv", "--key-heads", "1", "--shares",
                       "50%,100%", "--steps", "2", "--evaluations", "1", "--threads", "1",
                       "--out", "curve", *flags.split())  # fmt: skip
    assert done.code == 0, done.err
    assert re.search(r" 50% of the data: bits per byte \d", done.out)
    assert "picture: curve/learning-curve.png" in done.out


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ((), "`shares` is empty"),
        ((0,), "`shares` has 0, but a share must be above 0"),
        ((2,), "`shares` is 2, but it must be at most 1"),
    ],
)
def test_rejects_shares(shares, sentence, clearformer):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        learning_curve("classifier-imdb", data="a.csv", shares=shares)


def test_rejects_shares_on_the_command_line(clearformer):
    said = clearformer("train", "--data", "a.csv", "--shares", "some").complaint
    assert said == "--shares is 'some', but it must be like 0.1,0.3,1"
    said = clearformer("train", "--data", "a.csv", "--shares", "1", "--processes", "2").complaint
    assert said == "--shares does not go with --processes: leave one of them out"
