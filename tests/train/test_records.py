"""metrics.jsonl: appended, never torn, and a resumed curve counts once."""

import json

import pytest

from clearformer.train.records import Records, read


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
