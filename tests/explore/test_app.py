"""The application: pages, uniform errors, and limited response sizes."""

import json

import pytest

from clearformer.explore.app import create_app
from clearformer.explore.library import Library


def test_errors_have_one_format(client):
    for method, path, body, status, code in (
        ("GET", "/nowhere", None, 404, "unknown"),
        ("GET", "/api/traces/none/logits", None, 404, "unknown_trace"),
        ("GET", "/api/models/none/parameters", None, 404, "unknown_model"),
        ("GET", "/api/traces/none/attention", None, 422, "invalid"),
        ("PUT", "/api/traces", {}, 405, "method"),
        ("POST", "/api/traces", {"model": "none", "text": "a"}, 404, "unknown_model"),
        ("POST", "/api/traces", {"model": "gpt2", "checkpoint": "step-7", "text": "a"}, 404,
         "unknown_checkpoint"),
        ("POST", "/api/traces", {"text": "a"}, 422, "invalid"),
        ("POST", "/api/traces", {"model": "gpt2", "text": ""}, 422, "invalid"),
        ("POST", "/api/attribute", {"model": "gpt2", "text": "a"}, 409, "wrong_kind"),
    ):  # fmt: skip
        answer = client.ask(method, path, body)
        error = json.loads(answer.body)["error"]
        assert (answer.status, error["code"]) == (status, code), (path, error)
        assert error["message"]
    assert (
        json.loads(client.ask("POST", "/api/traces", raw=b"{").body)["error"]["code"] == "invalid"
    )
    for body in (
        b"[" * 100_000,
        b'{"model": "gpt2", "text": "\\ud800"}',
        b'{"model": "\\ud800"}',
        b"7",
    ):
        assert client.ask("POST", "/api/traces", raw=body).status in (400, 404, 422), body[:40]
    answer = client.ask("POST", "/api/traces", {"model": "gpt2", "text": "a", "pad_to": "x"})
    assert json.loads(answer.body)["error"]["field"] == "pad_to"


def test_internal_error_hides_details(tiny, monkeypatch):
    def broken(self):
        raise KeyError("secret")

    with tiny.serving("nowhere") as server:
        monkeypatch.setattr(Library, "models", broken)
        answer = server.client.ask("GET", "/api/models")
    assert answer.status == 500
    assert json.loads(answer.body)["error"]["code"] == "defect"
    assert b"secret" not in answer.body


def test_pages_are_served_from_the_package(client, monkeypatch, tmp_path):
    page = client.ask("GET", "/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert b"/static/explorer.js" in page.body
    assert client.ask("GET", "/static/explorer.js").status == 200
    monkeypatch.setattr("clearformer.explore.app.STATIC", tmp_path)
    assert client.ask("GET", "/").status == 503


def test_no_external_docs_pages():
    app = create_app(Library([]))
    assert app.docs_url is None
    assert app.redoc_url is None


def test_large_responses_are_compressed(client):
    answer = client.ask("GET", "/api/source", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("family", ["modern", "twelve"])
def test_responses_are_at_most_four_megabytes(client, traced, family):
    text = (
        "x" * 512 if family == "modern" else "the cat sat on the mat and the dog sat on the log ."
    )
    trace = traced(family, text)
    assert len(json.dumps(trace)) < 4 * 2**20
    for path in ("attention?layer=0&head=0", "query?layer=0&head=0&i=5", "residual", "lens?k=50",
                 "logits"):  # fmt: skip
        answer = client.ask("GET", f"/api/traces/{trace['id']}/{path}")
        assert answer.status == 200
        assert len(answer.body) < 4 * 2**20
