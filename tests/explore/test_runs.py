"""Following a run line by line, without repeating events."""

import json
import os
import time

import pytest

from clearformer.explore.runs import (
    ReadOffsets,
    RunWatcher,
    downsample,
    metrics,
    read_new,
    series,
    state,
    stop,
)
from clearformer.http_server.errors import Problem
from clearformer.runs import metrics as run_metrics
from clearformer.runs.lock import Lock
from clearformer.training.events import Step


@pytest.fixture
def run(tmp_path, tiny):
    tiny.write_metrics(tmp_path, 20)
    return tmp_path


def test_last_point_is_last_line(run):
    told = metrics(run, None)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines if "event" not in json.loads(line)]
    assert told["series"]["train_loss"][-1] == [20, steps[-1]["loss"]]
    assert told["last"] == json.loads(lines[-1])
    assert told["series"]["val_loss"] == [[10, 2.9 / 10**0.5], [20, 2.9 / 20**0.5]]
    assert told["series"]["targets_per_second"][0][1] == pytest.approx(5120)
    assert told["samples"][-1] == {"step": 20, "text": "sample of 20"}


def written(path, *rows):
    with path.open("a") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


def test_version_1_and_2_files_give_same_response(run, tmp_path, tiny):
    """The same run by both versions, and one that was started by the old and resumed by the new."""
    old, new, mixed = (tmp_path / name for name in ("old", "new", "mixed"))
    for folder in (old, new, mixed):
        folder.mkdir()
    tiny.write_metrics(old, 20)
    rows = [json.loads(line) for line in (old / "metrics.jsonl").read_text().splitlines()]
    modern = [run_metrics.normalized(row) for row in rows]
    for row in modern:
        if row["event"] == "step":
            row["tokens"] = row.pop("targets")
    start = run_metrics.start_row("tokens", "bits_per_byte")
    written(new / "metrics.jsonl", start, *modern)
    half = next(i for i, row in enumerate(rows) if row["step"] == 10) + 1
    resumed = {"event": "resume", "step": 10, "version": 2}
    written(mixed / "metrics.jsonl", *rows[:half], resumed, *modern[half:])
    expected = metrics(old, None)
    assert expected["series"].keys() >= {"train_loss", "val_loss", "targets_per_second"}
    # Version 1 did not say what it counted.
    expected["series"]["tokens_per_second"] = expected["series"].pop("targets_per_second")
    for folder in (new, mixed):
        told = metrics(folder, None)
        told["series"].pop("targets_per_second", None)
        if folder == new:
            assert told["series"] == expected["series"]
        assert told["last"] == expected["last"]
        assert state(folder)["step"] == 20


def test_last_step_uses_stable_names(run):
    step = Step(21, 0.5, 0.1, 1.0, 640, 9.0, 0.5)
    written(run / "metrics.jsonl", run_metrics.step_row(step, "texts"))
    assert metrics(run, None)["last"] == {
        "step": 21, "loss": 0.5, "lr": 0.1, "gradient_norm": 1.0, "tokens": 640, "seconds": 9.0,
        "progress": 0.5,
    }  # fmt: skip


def test_classifier_reports_texts_per_second(tmp_path):
    steps = [Step(n, 0.5, 0.1, 1.0, 16 * n, 2.0 * n, 0.5) for n in (1, 2)]
    written(
        tmp_path / "metrics.jsonl",
        run_metrics.start_row("texts", "accuracy"),
        *(run_metrics.step_row(step, "texts") for step in steps),
    )
    told = metrics(tmp_path, None)["series"]
    assert told["texts_per_second"] == [[2, 8.0]]
    assert "tokens_per_second" not in told


def test_only_new_records_are_returned(run, tiny):
    first = metrics(run, None)
    assert metrics(run, first["next"])["series"] == {}
    tiny.write_metrics(run, 1, start=21)
    second = metrics(run, first["next"])
    assert second["series"]["train_loss"] == [[21, 3 / 21**0.5]]
    # The rate needs the previous step, which was returned already.
    assert second["series"]["targets_per_second"][0] == pytest.approx([21, 5120])
    assert not second["reset"]


def test_incomplete_line_is_deferred(run):
    mark = read_new(run, ReadOffsets()).offsets
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "loss"')
    assert read_new(run, mark).records == []
    with (run / "metrics.jsonl").open("a") as file:
        file.write(': 1.0}\n{"step": broken}\n[1]\n')
        file.write('{"step": 22, "loss": NaN}\n')  # as others' trainers write it
    found = read_new(run, mark).records
    assert found == [
        {"event": "step", "step": 21, "train_loss": 1.0},
        {"event": "step", "step": 22, "train_loss": "nan"},
    ]


def test_resume_resets_series(run):
    mark = read_new(run, ReadOffsets()).offsets
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"event": "resume", "step": 15}\n{"step": 16, "loss": 9.0}\n')
    found = read_new(run, mark)
    assert found.reset
    steps = [record["step"] for record in found.records if record["event"] == "step"]
    assert steps == [*range(1, 16), 16]
    assert series(found.records)["train_loss"][-1] == [16, 9.0]


def test_truncated_file_resets_series(run):
    mark = read_new(run, ReadOffsets()).offsets
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 5.0}\n')
    found = read_new(run, mark)
    assert found.reset
    assert len(found.records) == 1


def test_watcher_reports_each_event_once(run, tiny):
    watch = RunWatcher(run, ReadOffsets(), set())
    names = [name for name, _ in watch.poll()]
    assert names == ["metric", "sample", "sample"]
    assert watch.poll() == []
    tiny.write_metrics(run, 3, start=21, end=True)
    (run / "checkpoints/step-23").mkdir(parents=True)
    events = watch.poll()
    assert [name for name, _ in events] == ["metric", "checkpoint", "end"]
    assert events[0][1]["step"] == 23
    assert [point[0] for point in events[0][1]["series"]["train_loss"]] == [21, 22, 23]
    assert events[2][1] == {"step": 23, "reason": "finished"}
    (run / "metrics.jsonl").write_text("")
    assert watch.poll() == [("reset", {})]


def test_event_size_is_limited(run):
    with (run / "metrics.jsonl").open("a") as file:
        for step in range(21, 20_000):
            file.write(json.dumps({"step": step, "loss": 1 / step, "lr": 0.1}) + "\n")
    ((_, data), *_) = RunWatcher(run, ReadOffsets(), set()).poll()
    assert len(json.dumps(data)) < 66_000
    told = metrics(run, None)["series"]
    assert all(len(points) <= 2000 for points in told.values())


def test_downsample_keeps_extremes_and_end():
    points = [[step, float(step % 7)] for step in range(10_000)]
    points[5000][1], points[5001][1] = 100.0, -100.0
    few = downsample(points, 200)
    assert len(few) <= 200
    assert [5000, 100.0] in few
    assert [5001, -100.0] in few
    assert few[-1] == points[-1]
    assert [p[0] for p in few] == sorted(p[0] for p in few)


def test_quiet_run_is_silent_not_finished(run):
    assert state(run)["state"] == "running"
    old = time.time() - 61
    os.utime(run / "metrics.jsonl", (old, old))
    assert state(run)["state"] == "silent"
    assert state(run)["step"] == 20
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"event": "end", "step": 20, "reason": "stopped", "exit": 0}\n')
    assert (state(run)["state"], state(run)["reason"]) == ("ended", "stopped")


def test_stop_creates_empty_file(run):
    lock = Lock(run)
    stop(run)
    assert (run / "stop").read_bytes() == b""
    lock.release()


def test_rejects_stop_of_run_that_is_not_training(run):
    with pytest.raises(Problem, match="so there is nothing to stop") as refusal:
        stop(run)
    assert (refusal.value.status, refusal.value.body["error"]["code"]) == (409, "not_running")
    assert not (run / "stop").exists()


def test_parse_rejects_invalid_offsets():
    assert str(ReadOffsets.parse("12-3")) == "12-3"
    for text in (None, "", "12", "-1-2", "1-2-3", "9" * 30 + "-1", "a-b"):
        assert ReadOffsets.parse(text) is None


WRONG = [
    '{"step": 1e999, "loss": 1e999, "tokens": 1e999, "seconds": 1}',
    '{"step": 21, "loss": 1' + "0" * 400 + ', "tokens": 1' + "0" * 400 + ', "seconds": 9}',
    '{"step": 1' + "0" * 30 + ', "loss": NaN, "tokens": -1e308, "seconds": 9.0}',
    '{"step": 22, "tokens": 1e308, "seconds": 9.000000000001}',
    '{"event": "evaluation", "loss": {"a": [1]}, "\\ud800": 2.0}',
    '{"event": "evaluation", "step": [1], "loss": 1e999}',
    '{"event": ["resume"], "step": null}',
    '{"event": "end", "step": "9", "reason": {"a": "\\ud800"}}',
    "[" * 100_000,
    "9" * 5000,
    "[]",
    '{"deep": ' + "[" * 500 + "]" * 500 + ', "\\udfff": "\\udfff", "big": 1' + "0" * 400 + "}",
]


def test_invalid_records_are_tolerated(run):
    """Invalid records are dropped, and the response is valid JSON."""
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(f"{line}\n" for line in WRONG)
    (run / "samples.jsonl").write_text('{"step": 1e999, "text": "a \\ud800"}\n{"text": 3}\n')
    told = metrics(run, None)
    json.dumps(told, allow_nan=False, ensure_ascii=False).encode()
    assert told["series"]["train_loss"][-1] == [0, "nan"]
    assert told["series"]["?"] == [[0, 2.0]]
    assert told["samples"] == [{"step": 0, "text": "a ?"}]
    assert told["last"] == {"?": "?"}
    events = RunWatcher(run, ReadOffsets(), set()).poll()
    json.dumps(events, allow_nan=False, ensure_ascii=False).encode()
    assert ("end", {"step": 0, "reason": ""}) in events
    json.dumps(state(run), allow_nan=False, ensure_ascii=False).encode()


def test_symlinks_and_pipes_are_not_read(run, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text('{"step": 1, "loss": 2.0, "text": "secret"}\n')
    for name in ("metrics.jsonl", "samples.jsonl"):
        for plant in (lambda path: path.symlink_to(secret), os.mkfifo):
            (run / name).unlink(missing_ok=True)
            plant(run / name)
            told = metrics(run, None)
            assert "secret" not in str(told)
            told_on = {event for event, _ in RunWatcher(run, ReadOffsets(), set()).poll()}
            assert told_on == ({"sample"} if name == "metrics.jsonl" else set())
    assert state(run)["step"] == 0
    assert told["series"] == {}
    (run / "checkpoints").symlink_to(tmp_path)
    (tmp_path / "step-3").mkdir()
    assert RunWatcher(run, ReadOffsets(), set()).poll() == []


def test_removed_run_is_silent(tmp_path):
    assert state(tmp_path / "gone")["state"] == "silent"


def test_stop_does_not_follow_symlink(run, tmp_path):
    (run / "stop").symlink_to(tmp_path / "elsewhere")
    lock = Lock(run)
    stop(run)
    assert not (tmp_path / "elsewhere").exists()
    lock.release()
