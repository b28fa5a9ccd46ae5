"""Exporting a page over HTTP."""

import json
import re

import pytest


def payload_of(text):
    return json.loads(re.search(r'id="payload">(.*?)</script>', text, re.DOTALL)[1])


def test_exported_file_contains_server_responses(client, traced):
    trace = traced("gpt2")
    head = f"/api/traces/{trace['id']}/head?layer=0&head=1&part=self"
    asked = {
        "view": "attention",
        "state": {"trace": trace["id"]},
        "requests": ["/api/models", head],
    }
    answer = client.ask("POST", "/api/export", asked)
    assert answer.status == 200
    assert (
        answer.headers["content-disposition"] == 'attachment; filename="clearformer-attention.html"'
    )
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    text = answer.body.decode()
    payload = json.loads(re.search(r'id="payload">(.*?)</script>', text, re.DOTALL)[1])
    assert payload["responses"]["POST /api/traces"] == trace
    key = f"GET /api/traces/{trace['id']}/head?head=1&layer=0&part=self"
    assert payload["responses"][key] == client.get(head)
    assert payload["responses"]["GET /api/models"] == client.get("/api/models")


def test_rejects_invalid_view_names(client):
    for view in ("../x", "", "a" * 30, '"><script>'):
        client.post("/api/export", {"view": view}, status=422)


@pytest.mark.parametrize("body", [None, {}])
@pytest.mark.parametrize(
    "path", ["/api/runs/{}/%65vents", "/api/runs/{}/%73top", "/api/runs/{}/events"]
)
def test_rejects_forged_requests(client, explorer_server, path, body):
    asked = [{"path": path.format("gpt2"), "body": body}]
    told = client.post("/api/export", {"view": "training", "requests": asked}, status=422)
    assert "cannot be exported" in told["error"]["message"]
    assert not (explorer_server.runs / "gpt2" / "stop").exists()
    assert client.get("/api/info")["generating"] == 0


def test_number_of_concurrent_exports_is_limited(client, explorer_server):
    exports = explorer_server.app.state.explorer.exports
    with exports.acquire(), exports.acquire():
        told = client.post("/api/export", {"view": "attention"}, status=429)
        assert told["error"]["message"] == "2 exports are running already"
        assert client.get("/api/info")["generating"] == 0
    assert client.ask("POST", "/api/export", {"view": "attention"}).status == 200


def test_unknown_trace_in_state_is_ignored(client):
    for trace in ("../runs", "%65vents", "gone", 7, None):
        answer = client.ask("POST", "/api/export", {"view": "attention", "state": {"trace": trace}})
        assert answer.status == 200


def test_every_request_of_pages_is_allowed(client, traced):
    """The requests of web/src; a new one must be added to the list."""
    trace = traced("gpt2")["id"]
    place, gpt2 = f"/api/traces/{trace}", {"model": "gpt2", "text": "a b"}
    wanted = [
        "/api/info", "/api/models", "/api/models/gpt2/parameters", "/api/source",
        f"/api/source?symbol={client.get('/api/source')['symbols'][0]}",
        "/api/scaling?d=64&n=64&seed=0",
        "/api/patterns?kind=strided&layers=2&n=64&stride=8&summary=1",
        "/api/memory?layers=3&memory=8&segment=8&segments=5",
        "/api/positions?checkpoint=step-20&model=gpt2", "/api/runs", "/api/runs/gpt2/metrics",
        place, f"{place}/attention?head=0&layer=0&part=self&stage=weights",
        f"{place}/head?head=0&layer=0&part=self", f"{place}/query?head=0&i=1&layer=0&part=self",
        f"{place}/projection?d=0&head=0&i=1&layer=0&part=self&which=q", f"{place}/logits?i=-1",
        f"{place}/residual", f"{place}/residual?i=1&layer=0&part=self", f"{place}/lens?k=5",
        f"{place}/mlp?i=1&k=5&layer=0",
        {"path": "/api/probe", "body": {**gpt2, "edit": {"i": 0, "text": "c"}}},
        {"path": "/api/permute", "body": {**gpt2, "text": "a", "permutation": [0]}},
        {"path": "/api/attribute", "body": {"model": "classifier", "text": "a good film"}},
        {"path": "/api/corrupt", "body": {"model": "bert", "text": "the cat"}},
        {
            "path": "/api/compare",
            "body": {"a": {"model": "gpt2"}, "b": {"model": "gpt2"}, "text": "a"},
        },
    ]  # fmt: skip
    answer = client.ask("POST", "/api/export", {"view": "attention", "requests": wanted})
    assert answer.status == 200, answer.body[:300]
    found = payload_of(answer.body.decode())["responses"]
    asked = [each if isinstance(each, str) else each["path"] for each in wanted]
    missing = [each for each in asked if not {f"GET {each}", f"POST {each}"} & set(found)]
    assert missing == []
