"""Runs over HTTP: list, incremental metrics, resumable event stream, and stop."""

import os
import shutil
import time

import pytest

from clearformer.runs.lock import Lock


@pytest.fixture
def live(explorer_server, tiny, monkeypatch):
    """A run that is written while it is read."""
    monkeypatch.setattr("clearformer.explore.runs.SILENT_SECONDS", 1e9)
    folder = explorer_server.runs / "live"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    tiny.write_metrics(folder, 10)
    yield folder
    shutil.rmtree(folder)


def test_new_run_is_listed(client, live):
    rows = {row["id"]: row for row in client.get("/api/runs")}
    assert rows["live"]["state"] == "running"
    assert rows["live"]["step"] == 10
    assert rows["live"]["model"] is None  # nothing to open yet
    assert (rows["gpt2"]["state"], rows["gpt2"]["reason"]) == ("ended", "finished")
    assert rows["gpt2"]["model"] == "gpt2"


def test_metrics_are_sent_incrementally(client, live, tiny):
    first = client.get("/api/runs/live/metrics")
    tiny.write_metrics(live, 2, start=11)
    second = client.get(f"/api/runs/live/metrics?since={first['next']}")
    assert [point[0] for point in second["series"]["train_loss"]] == [11, 12]
    (live / "metrics.jsonl").write_text("")
    assert client.get(f"/api/runs/live/metrics?since={first['next']}")["reset"]


def test_event_stream_resumes_from_last_event_id(client, live, tiny):
    events = client.events("/api/runs/live/events", most=2)
    assert [name for name, _, _ in events] == ["metric", "sample"]
    tiny.write_metrics(live, 3, start=11, end=True)
    headers = {"Last-Event-ID": events[-1][2]}
    later = client.events("/api/runs/live/events", most=2, headers=headers)
    assert [name for name, _, _ in later] == ["metric", "end"]
    steps = [point[0] for point in later[0][1]["series"]["train_loss"]]
    assert steps == [11, 12, 13]
    since = client.get("/api/runs/live/metrics")["next"]
    (live / "metrics.jsonl").write_text("")
    assert client.events(f"/api/runs/live/events?since={since}", most=1)[0][0] == "reset"


def test_stop_creates_stop_file(client, live):
    lock = Lock(live)
    assert client.post("/api/runs/live/stop", {}, status=202) == {"id": "live"}
    assert (live / "stop").exists()
    lock.release()
    client.post("/api/runs/nan/stop", {}, status=404)  # a model that no run wrote


@pytest.fixture
def bad(explorer_server, tiny):
    """An untrusted run with a pipe, a link and invalid numbers."""
    folder = explorer_server.runs / "bad"
    folder.mkdir()
    os.mkfifo(folder / "config.json")
    tiny.write_metrics(folder, 2)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1e999, "loss": 1e999, "tokens": 1e999, "\\ud800": "\\ud800"}\n')
    (folder / "samples.jsonl").symlink_to("/etc/passwd")
    yield folder
    shutil.rmtree(folder)


def test_damaged_run_is_reported_and_others_work(client, bad):
    assert "gpt2" in [row["id"] for row in client.get("/api/models")]
    assert "bad/config.json is a named pipe" in client.get("/api/info")["problems"]["bad"]
    rows = {row["id"]: row for row in client.get("/api/runs")}
    assert (rows["bad"]["family"], rows["bad"]["model"]) == (None, None)
    assert rows["gpt2"]["model"] == "gpt2"
    told = client.get("/api/runs/bad/metrics")
    assert [step for step, _ in told["series"]["train_loss"]] == [1, 2]
    assert told["samples"] == []


def test_rejects_stop_of_ended_run(client, live, explorer_server):
    for name, folder in (("live", live), ("gpt2", explorer_server.runs / "gpt2")):
        told = client.post(f"/api/runs/{name}/stop", {}, status=409)
        assert told["error"]["code"] == "not_running"
        assert "so there is nothing to stop" in told["error"]["message"]
        assert not (folder / "stop").exists()


def test_number_of_streams_is_limited(client, live, explorer_server):
    """Streams have a separate limit, so that pages are answered however many are open."""
    streams = explorer_server.app.state.explorer.streams
    limit = streams.limit
    streams.limit = 2
    try:
        opened = [client.stream("/api/runs/live/events") for _ in range(2)]
        told = client.get("/api/runs/live/events", status=429)
        assert told["error"]["message"] == "2 event streams are open already"
        asked = {"model": "gpt2", "prompt": "the"}
        assert client.post("/api/generate", asked, status=429)["error"]["code"] == "busy"
        assert client.get("/api/runs/live/metrics")["next"]
        for connection, answer in opened:
            answer.close()
            connection.close()
        while streams.in_use:  # until the server has noticed
            time.sleep(0.01)
        assert client.events("/api/runs/live/events", most=1)
    finally:
        streams.limit = limit
