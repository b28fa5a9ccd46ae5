"""metrics.jsonl: appended, never torn, and a resumed curve counts once."""

import json
import os

import pytest

from clearformer import limits
from clearformer.train.records import BLOCK, Records, read


def test_lines_are_appended(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for start in (0, 2):
        records = Records(path)
        records.append({"step": start + 1, "loss": 0.1})
        records.append({"step": start + 2, "loss": float("nan")})
        records.close()
    assert [record["step"] for record in read(path)] == [1, 2, 3, 4]
    assert json.loads(path.read_text().splitlines()[1])["loss"] == "nan"


def test_a_torn_line_is_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "lo')
    assert read(path) == [{"step": 1}]
    records = Records(path)
    records.append({"step": 2})
    records.close()
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def test_after_a_resume_earlier_records_of_later_steps_do_not_count(tmp_path):
    records = Records(tmp_path / "m")
    for step in (1, 2, 3):
        records.append({"step": step, "try": 1})
    records.append({"event": "end", "step": 3, "reason": "stopped"})
    records.append({"event": "resume", "step": 2})
    records.append({"step": 3, "try": 2})
    records.close()
    assert read(tmp_path / "m") == [
        {"step": 1, "try": 1},
        {"step": 2, "try": 1},
        {"step": 3, "try": 2},
    ]


def test_a_missing_file_has_no_records(tmp_path):
    assert read(tmp_path / "none") == []


def test_an_evaluation_that_a_resume_repeats_counts_once(tmp_path):
    records = Records(tmp_path / "m.jsonl")
    evaluation = {"event": "evaluation", "step": 2, "loss": 1.0}
    saved = {"event": "checkpoint", "step": 2}
    for record in ({"step": 2}, evaluation, saved, {"event": "resume", "step": 2}, evaluation):
        records.append(record)
    records.close()
    assert read(tmp_path / "m.jsonl") == [{"step": 2}, evaluation]


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"step": 1}\n{"step"\n')
    with pytest.raises(ValueError, match=r"m\.jsonl is damaged: line 2 is no JSON object"):
        read(tmp_path / "m.jsonl")


@pytest.mark.parametrize("length", [10, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("before", [b"", b"{}\n", b"{}\n" * 30_000])
def test_a_torn_line_is_cut_wherever_it_begins(tmp_path, before, length):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(before + b"x" * length)
    with Records(path) as records:
        assert records.begun == bool(before)
    assert path.read_bytes() == before


def test_nothing_is_written_through_a_link(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "metrics.jsonl"
    victim.write_text("precious, without an end of line")
    path.symlink_to(victim)
    for use in (Records, read):
        with pytest.raises(ValueError, match=r"metrics\.jsonl is a symbolic link"):
            use(path)
    path.unlink()
    os.link(victim, path)
    with Records(path) as records:
        records.append({"step": 1})
    assert victim.read_text() == "precious, without an end of line"
    assert read(path) == [{"step": 1}]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"event": "resume"}', "has no step, but None"),
        ('{"event": "evaluation", "loss": 1}', "has no step, but None"),
        ('{"step": "3"}', "has no step, but '3'"),
        ('{"step": [1]}', r"has no step, but \[1\]"),
        ('{"step": 1e999}', "has no step, but inf"),
        ("[" * 100_000, "is no JSON object"),
        ("9" * 5000, "is no JSON object"),
    ],
)
def test_records_of_somebody_else_are_refused_by_their_line(tmp_path, line, reason):
    (tmp_path / "m.jsonl").write_text(f'{{"step": 1}}\n{line}\n')
    with pytest.raises(ValueError, match=rf"m\.jsonl is damaged: line 2 {reason}"):
        read(tmp_path / "m.jsonl")


def test_more_records_than_a_run_has_are_not_read(tmp_path, monkeypatch):
    path = tmp_path / "m.jsonl"
    path.write_text("{}\n" * 4)
    monkeypatch.setattr(limits, "MOST_RECORDS", 3)
    with pytest.raises(ValueError, match=r"has 4 lines, but 3 are the most \(MOST_RECORDS\)"):
        read(path)
    monkeypatch.setattr(limits, "LARGEST_RECORDS", 11)
    with pytest.raises(ValueError, match=r"has 12 bytes, but 11 are the most \(LARGEST_RECORDS\)"):
        read(path)
