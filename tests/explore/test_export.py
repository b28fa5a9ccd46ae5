"""Exported files: contain what a page shows, without network access."""

import asyncio
import json
import re

import pytest

from clearformer.explore import export
from clearformer.http_server.errors import Problem


def payload_of(text):
    data = re.search(r'id="payload">(.*?)</script>', text, re.DOTALL)[1]
    return json.loads(data)


def exported(answers, requests, state=None, given=None):
    async def ask(method, path, body):
        answer = answers(method, path, body)
        return None if answer is None else json.dumps(answer).encode()

    asked = [export.Request(*each) for each in requests]
    return asyncio.run(export.page(ask, "attention", state or {}, asked, given or {}))


def test_responses_are_keyed_by_sorted_query():
    text = exported(
        lambda method, path, body: {"asked": [method, path, body]},
        [
            ("/api/scaling?seed=1&d=2", None, None),
            ("/api/probe", {"x": 1}, None),
            ("/api/info", None, "own key"),
        ],
        {"layer": 1},
        {"mine": 7, "GET /api/scaling?d=2&seed=1": "loses"},
    )
    found = payload_of(text)
    assert found["state"] == {"layer": 1}
    assert found["responses"] == {
        "mine": 7,
        "GET /api/scaling?d=2&seed=1": {"asked": ["GET", "/api/scaling?d=2&seed=1", None]},
        "POST /api/probe": {"asked": ["POST", "/api/probe", {"x": 1}]},
        "own key": {"asked": ["GET", "/api/info", None]},
    }


def test_text_cannot_escape_its_element():
    evil = "</script><img src=x onerror=alert(1)>"
    text = exported(lambda *asked: evil, [("/api/info", None, None)], {"text": evil})
    assert "<img" not in text
    assert payload_of(text)["state"]["text"] == evil
    assert text.count("</script>") == 3  # languages, payload, bundle


def test_exported_file_contains_licences():
    text = exported(lambda *asked: None, [])
    assert text.startswith("<!doctype html>\n<!--\n")
    comment = text.split("<!--")[1].split("-->")[0]
    assert comment.strip() == export.static("LICENSES.txt").decode().strip()
    for name in ("svelte", "uplot", "clsx"):
        assert f"\n{name} " in comment


def test_content_security_policy_forbids_network():
    text = exported(lambda *asked: None, [])
    assert "default-src 'none'" in text.split("<body>")[0]
    outside = re.findall(r'(?:src|href)="(?!data:)[^"]*"', text)
    assert outside == []


def test_oversized_head_keeps_selected_query():
    def answers(method, path, body):
        return "x" * (6 * 2**20) if "/head?" in path else path

    text = exported(answers, [("/api/traces/t/head?head=0&layer=1", None, None)], {"query": 3})
    found = payload_of(text)
    assert found["only_query"]
    assert list(found["responses"]) == ["GET /api/traces/t/query?head=0&i=3&layer=1"]
    with pytest.raises(Problem, match="the file would have"):
        exported(lambda *asked: "x" * (6 * 2**20), [("/api/info", None, None)])


def test_no_request_is_made_if_one_is_rejected():
    asked = []
    with pytest.raises(Problem, match="cannot be exported"):
        exported(
            lambda *each: asked.append(each),
            [("/api/info", None, None), ("/api/runs/r/%73top", {}, None)],
        )
    assert asked == []


def test_total_response_size_is_limited():
    asked = []

    def answers(method, path, body):
        asked.append(path)
        return "x" * 2**20

    requests = [(f"/api/traces/t{n}/logits", None, None) for n in range(100)]
    with pytest.raises(Problem, match="the responses for this file are too large") as refusal:
        exported(answers, requests)
    assert refusal.value.status == 413
    assert len(asked) == 20


def test_export_has_timeout(monkeypatch):
    monkeypatch.setattr(export, "EXPORT_SECONDS", 0.01)

    async def ask(method, path, body):
        await asyncio.Event().wait()

    with pytest.raises(Problem, match="the export was not complete in 0 s") as refusal:
        asyncio.run(export.page(ask, "attention", {}, [export.Request("/api/info")], {}))
    assert refusal.value.status == 503


def test_rejects_deeply_nested_state():
    state = {}
    for _ in range(100_000):
        state = {"x": state}
    with pytest.raises(Problem, match="the state of the page is nested too deeply"):
        exported(lambda *asked: None, [], state)


def test_optional_responses_are_included_while_they_fit():
    """Every head is saved that fits 5 MB, the selected one first."""
    heads = [f"/api/traces/t/head?head={n}&layer=0" for n in range(8)]
    requests = [(heads[3], None, None), *((each, None, None, True) for each in heads[:3])]
    answers = {each: "x" * (1_300_000 if each == heads[2] else 1_000_000) for each in heads}
    found = payload_of(exported(lambda method, path, body: answers[path], requests))
    assert set(found["responses"]) == {f"GET {heads[n]}" for n in (3, 0, 1, 2)}
    assert not found["only_query"]
    more = [(heads[3], None, None), *((each, None, None, True) for each in heads)]
    found = payload_of(exported(lambda method, path, body: answers[path], more))
    assert f"GET {heads[3]}" in found["responses"]
    assert f"GET {heads[7]}" not in found["responses"]
