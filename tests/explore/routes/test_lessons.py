"""Lessons over HTTP."""


def test_lessons_need_no_model(client):
    assert client.get("/api/scaling?d=16&n=32&seed=1")["d"] == 16
    assert client.get("/api/patterns?kind=strided&n=64&stride=8&layers=2")["edges"] == 708
    assert client.get("/api/memory?segment=4&memory=4&layers=2&segments=4")["reach"] == [4, 8]


def test_numbers_have_limits(client):
    client.get("/api/scaling?d=100000", status=422)
    client.get("/api/patterns?n=100000", status=422)
    client.get("/api/memory?layers=0", status=422)
