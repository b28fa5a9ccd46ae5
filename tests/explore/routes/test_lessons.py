"""Lessons over HTTP."""

import threading

from clearformer.explore.limits import MAX_QUEUE


def test_lessons_need_no_model(client):
    assert client.get("/api/scaling?d=16&n=32&seed=1")["d"] == 16
    assert client.get("/api/patterns?kind=strided&n=64&stride=8&layers=2")["edges"] == 708
    assert client.get("/api/memory?segment=4&memory=4&layers=2&segments=4")["reach"] == [4, 8]


def test_rejects_numbers_over_limits(client):
    client.get("/api/scaling?d=100000", status=422)
    client.get("/api/patterns?n=100000", status=422)
    client.get("/api/memory?layers=0", status=422)


def test_lessons_have_their_own_queue(client, explorer_server):
    """Some take a second: they run one at a time, and other requests are answered meanwhile."""
    worker, go = explorer_server.app.state.explorer.lessons, threading.Event()
    running = threading.Event()
    first = worker.submit(lambda: (running.set(), go.wait(300)))
    assert running.wait(300)
    waiting = [worker.submit(lambda: None) for _ in range(MAX_QUEUE)]
    try:
        told = client.get("/api/memory", status=429)
        assert told["error"]["message"] == "8 calls are waiting for this lesson already"
        assert client.get("/api/info")["version"]
        assert client.get("/api/models")
    finally:
        go.set()
    for each in (first, *waiting):
        each.result(300)
    assert client.get("/api/memory")["layers"] == 3
