"""A page as a file, over HTTP."""

import json
import re


def test_a_file_holds_the_answers_of_the_server(client, traced):
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


def test_a_view_has_a_plain_name(client):
    for view in ("../x", "", "a" * 30, '"><script>'):
        client.post("/api/export", {"view": view}, status=422)
