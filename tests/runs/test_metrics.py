"""metrics.jsonl: append-only, tolerant of torn lines, and steps counted once after a resume."""

import json
import os

import pytest

from clearformer import limits
from clearformer.runs.metrics import (
    BLOCK,
    MetricsFile,
    evaluation_row,
    normalized,
    read,
    start_row,
    step_row,
    targets,
)
from clearformer.training.events import Evaluation, Step


def test_appends_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for start in (0, 2):
        records = MetricsFile(path)
        records.append({"step": start + 1, "loss": 0.1})
        records.append({"step": start + 2, "loss": float("nan")})
        records.close()
    assert [record["step"] for record in read(path)] == [1, 2, 3, 4]
    assert json.loads(path.read_text().splitlines()[1])["loss"] == "nan"


def test_torn_last_line_is_removed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "lo')
    assert read(path) == [{"event": "step", "step": 1}]
    records = MetricsFile(path)
    records.append({"step": 2})
    records.close()
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def test_resume_discards_records_of_later_steps(tmp_path):
    records = MetricsFile(tmp_path / "m")
    for step in (1, 2, 3):
        records.append({"step": step, "try": 1})
    records.append({"event": "end", "step": 3, "reason": "stopped"})
    records.append({"event": "resume", "step": 2})
    records.append({"step": 3, "try": 2})
    records.close()
    assert [(r["event"], r["step"], r["try"]) for r in read(tmp_path / "m")] == [
        ("step", 1, 1),
        ("step", 2, 1),
        ("step", 3, 2),
    ]


def test_missing_file_has_no_records(tmp_path):
    assert read(tmp_path / "none") == []


def test_repeated_evaluation_counts_once(tmp_path):
    records = MetricsFile(tmp_path / "m.jsonl")
    evaluation = {"event": "evaluation", "step": 2, "validation_loss": 1.0}
    saved = {"event": "checkpoint", "step": 2}
    for record in ({"step": 2}, evaluation, saved, {"event": "resume", "step": 2}, evaluation):
        records.append(record)
    records.close()
    assert read(tmp_path / "m.jsonl") == [{"event": "step", "step": 2}, evaluation]


def test_rejects_damaged_line(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"step": 1}\n{"step"\n')
    with pytest.raises(ValueError, match=r"m\.jsonl is damaged: line 2 is not a JSON object"):
        read(tmp_path / "m.jsonl")


STEP = Step(3, 0.5, 0.1, 1.0, 640, 9.0, 0.25)
# The same step and the same evaluation, as version 1 wrote them.
OLD_STEP = {
    "step": 3, "loss": 0.5, "lr": 0.1, "gradient_norm": 1.0, "tokens": 640, "seconds": 9.0,
    "progress": 0.25,
}  # fmt: skip
EVALUATION = Evaluation(3, {"loss": 0.7, "accuracy": 0.5}, best=True)
OLD_EVALUATION = {"event": "evaluation", "step": 3, "best": True, "loss": 0.7, "accuracy": 0.5}


@pytest.mark.parametrize("counted", ["tokens", "texts", "hidden tokens", "target tokens"])
def test_step_row_names_counted_targets(counted):
    row = step_row(STEP, counted)
    assert row[counted.replace(" ", "_")] == 640
    assert targets(row) == (counted.replace(" ", "_"), 640)
    assert row["event"] == "step"
    assert start_row(counted, "loss")["counts"] in row


def test_version_1_rows_are_normalized():
    old, new = normalized(OLD_STEP), step_row(STEP, "texts")
    assert targets(old) == ("targets", 640), "what they were was not said"
    assert {"texts": old.pop("targets"), **old} == new
    assert normalized(OLD_EVALUATION) == evaluation_row(EVALUATION)
    for row in (new, evaluation_row(EVALUATION), {"event": "end", "step": 3, "exit": 0}):
        assert normalized(row) == row


def test_training_and_validation_metrics_have_distinct_names():
    shared = step_row(STEP, "texts").keys() & evaluation_row(EVALUATION).keys()
    assert shared == {"event", "step"}


def test_mixed_version_file_is_read(tmp_path):
    records = MetricsFile(tmp_path / "m.jsonl")
    later = Step(4, 0.4, 0.1, 1.0, 700, 10.0, 0.3)
    for record in (
        OLD_STEP,
        OLD_EVALUATION,
        {**OLD_STEP, "step": 4},
        {"event": "end", "step": 4, "reason": "stopped", "exit": 143},
        {"event": "resume", "step": 3, "version": 2},
        evaluation_row(EVALUATION),
        step_row(later, "texts"),
    ):
        records.append(record)
    records.close()
    assert read(tmp_path / "m.jsonl") == [
        normalized(OLD_STEP), evaluation_row(EVALUATION), step_row(later, "texts"),
    ]  # fmt: skip


@pytest.mark.parametrize("length", [10, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("before", [b"", b"{}\n", b"{}\n" * 30_000])
def test_torn_line_is_removed_at_any_offset(tmp_path, before, length):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(before + b"x" * length)
    with MetricsFile(path) as records:
        assert records.has_rows == bool(before)
    assert path.read_bytes() == before


def test_does_not_write_through_links(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "metrics.jsonl"
    victim.write_text("precious, without an end of line")
    path.symlink_to(victim)
    for use in (MetricsFile, read):
        with pytest.raises(ValueError, match=r"metrics\.jsonl is a symbolic link"):
            use(path)
    path.unlink()
    os.link(victim, path)
    with MetricsFile(path) as records:
        records.append({"step": 1})
    assert victim.read_text() == "precious, without an end of line"
    assert read(path) == [{"event": "step", "step": 1}]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"event": "resume"}', "the step in line 2 is None"),
        ('{"event": "evaluation", "loss": 1}', "the step in line 2 is None"),
        ('{"step": "3"}', "the step in line 2 is '3'"),
        ('{"step": [1]}', r"the step in line 2 is \[1\]"),
        ('{"step": 1e999}', "the step in line 2 is inf"),
        ("[" * 100_000, "line 2 is not a JSON object"),
        ("9" * 5000, "line 2 is not a JSON object"),
    ],
)
def test_rejects_invalid_records_by_line(tmp_path, line, reason):
    (tmp_path / "m.jsonl").write_text(f'{{"step": 1}}\n{line}\n')
    with pytest.raises(ValueError, match=rf"m\.jsonl is damaged: {reason}"):
        read(tmp_path / "m.jsonl")


def test_rejects_file_over_record_limits(tmp_path, monkeypatch):
    path = tmp_path / "m.jsonl"
    path.write_text("{}\n" * 4)
    monkeypatch.setattr(limits, "MAX_RECORDS", 3)
    with pytest.raises(ValueError, match=r"has 4 lines, but the limit is 3 \(MAX_RECORDS\)"):
        read(path)
    monkeypatch.setattr(limits, "MAX_RECORDS_BYTES", 11)
    with pytest.raises(
        ValueError, match=r"has 12 bytes, but 11 are the most \(MAX_RECORDS_BYTES\)"
    ):
        read(path)
