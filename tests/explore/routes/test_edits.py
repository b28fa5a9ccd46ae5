"""The route of edits: over HTTP as in Python."""

import pytest


def test_a_head_is_switched_off(client, traced):
    trace = traced("gpt2")
    off = {"heads_off": [{"layer": 0, "head": 1}]}
    answer = client.post(f"/api/traces/{trace['id']}/edit", off)
    assert answer["i"] == len(trace["tokens"]) - 1
    assert answer["moved"] > 0
    assert len(answer["loss"]) == 2
    # The trace itself stays what it was.
    again = client.post(f"/api/traces/{trace['id']}/edit", {})
    assert again["moved"] == pytest.approx(0, abs=1e-6)


def test_refusals(client, traced):
    trace = traced("gpt2")
    off = {"heads_off": [{"layer": 9, "head": 0}]}
    refused = client.post(f"/api/traces/{trace['id']}/edit", off, status=422)
    assert refused["error"]["message"].startswith("layer is 9, but the model has layers 0 to 1")
    client.post("/api/traces/nowhere/edit", {}, status=404)
