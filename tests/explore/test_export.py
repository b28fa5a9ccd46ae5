"""A file that holds what a page shows, and cannot reach the network."""

import asyncio
import json
import re

import pytest

from clearformer.explore import export
from clearformer.explore.errors import Problem


def payload_of(text):
    data = re.search(r'id="payload">(.*?)</script>', text, re.DOTALL)[1]
    return json.loads(data)


def exported(answers, requests, state=None, given=None):
    async def ask(method, path, body):
        return answers(method, path, body)

    return asyncio.run(export.page(ask, "attention", state or {}, requests, given or {}))


def test_answers_are_found_by_their_sorted_query():
    text = exported(
        lambda method, path, body: {"asked": [method, path, body]},
        [("/api/a?z=1&b=2", None, None), ("/api/b", {"x": 1}, None), ("/api/c", None, "own key")],
        {"layer": 1},
        {"mine": 7, "GET /api/a?b=2&z=1": "loses"},
    )
    found = payload_of(text)
    assert found["state"] == {"layer": 1}
    assert found["responses"] == {
        "mine": 7,
        "GET /api/a?b=2&z=1": {"asked": ["GET", "/api/a?z=1&b=2", None]},
        "POST /api/b": {"asked": ["POST", "/api/b", {"x": 1}]},
        "own key": {"asked": ["GET", "/api/c", None]},
    }


def test_text_cannot_leave_its_element():
    evil = "</script><img src=x onerror=alert(1)>"
    text = exported(lambda *asked: evil, [("/api/a", None, None)], {"text": evil})
    assert "<img" not in text
    assert payload_of(text)["state"]["text"] == evil
    assert text.count("</script>") == 2


def test_a_policy_forbids_the_network():
    text = exported(lambda *asked: None, [])
    assert "default-src 'none'" in text.split("<body>")[0]
    outside = re.findall(r'(?:src|href)="(?!data:)[^"]*"', text)
    assert outside == []


def test_what_is_too_large_keeps_the_query_that_is_looked_at():
    def answers(method, path, body):
        return "x" * (6 * 2**20) if "/head?" in path else path

    text = exported(answers, [("/api/traces/t/head?head=0&layer=1", None, None)], {"query": 3})
    found = payload_of(text)
    assert found["only_query"]
    assert list(found["responses"]) == ["GET /api/traces/t/query?head=0&i=3&layer=1"]
    with pytest.raises(Problem, match="the file would have"):
        exported(lambda *asked: "x" * (6 * 2**20), [("/api/a", None, None)])


@pytest.mark.parametrize(
    "path", ["/api/export", "/api/generate", "/api/runs/r/stop", "/api/runs/r/events", "/etc"]
)
def test_streams_and_deeds_cannot_be_put_into_a_file(path):
    with pytest.raises(Problem, match="cannot be put into a file"):
        exported(lambda *asked: None, [(path, {}, None)])
