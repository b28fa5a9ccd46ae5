"""Allow list of requests whose responses an exported page may contain."""

import re
from pathlib import Path

import pytest

from clearformer.explore import export_allowlist
from clearformer.http_server.errors import Problem

WEB = Path(__file__).parents[2] / "web" / "src"
# Paths that passed an earlier check, or could pass a careless one.
FORGED = [
    "/api/export",
    "/api/generate",
    "/api/traces",
    "/api/runs/r/stop",
    "/api/runs/r/events",
    "/api/runs/r/%65vents",
    "/api/runs/r/%2565vents",
    "/api/runs/r/%73top",
    "/api/%65xport",
    "/api/runs/r/EVENTS",
    "/api/runs/r/events/",
    "/api/runs/r//events",
    "/api/runs/r/./events",
    "/api/runs/r/x/../events",
    "/api/runs/r/metrics/../events",
    "/api/runs/r%2fevents",
    "/api/runs/r\\events",
    "/api/runs/r/metrics%3f/../events",
    "/api/runs/r/metrics/",
    "/api/runs/r/metrics\n",
    "/api/runs/é/metrics",
    "//evil.test/api/info",
    "http://evil.test/api/info",
    "http://127.0.0.1/api/info",
    "/api/info#events",
    "/api/info;x",
    "/api/../api/info",
    "/api//info",
    "/API/info",
    "/Api/info",
    "/api/openapi.json",
    "/static/explorer.js",
    "/",
    "",
    "/etc/passwd",
    "api/info",
    f"/api/traces/{'x' * 101}",
    # The right path with the wrong parameters.
    "/api/info?a=1",
    "/api/source?symbol=a&symbol=b",
    "/api/source?symbol=a&other=b",
    "/api/patterns?n=1&n=2",
    "/api/traces/t/head?layer=0&head=0&i=1",
    "/api/traces/t/head?layer=0&head=0&part=self&" + "x=1&" * 1000,
]


@pytest.mark.parametrize("target", FORGED)
@pytest.mark.parametrize("body", [None, {}, {"model": "m"}], ids=["get", "empty", "post"])
def test_rejects_requests_not_on_list(target, body):
    with pytest.raises(Problem, match="cannot be exported") as refusal:
        export_allowlist.parse(target, body)
    assert refusal.value.status == 422
    assert len(str(refusal.value)) < 120


@pytest.mark.parametrize("target", ["/api/probe", "/api/permute?x=1", "/api/%70robe"])
def test_method_must_match(target):
    with pytest.raises(Problem, match="cannot be exported"):
        export_allowlist.parse(target, None if target == "/api/probe" else {})
    with pytest.raises(Problem, match="cannot be exported"):
        export_allowlist.parse("/api/info", {})


def test_request_is_rebuilt_from_checked_parts():
    found = export_allowlist.parse("/api/traces/t-1/head?part=self&layer=1&head=0")
    assert (found.method, found.target) == ("GET", "/api/traces/t-1/head?head=0&layer=1&part=self")
    assert found.key == f"GET {found.target}"
    odd = export_allowlist.parse("/api/source?symbol=a%26symbol%3Db%2F..%23")
    assert odd.query == (("symbol", "a&symbol=b/..#"),)
    assert odd.target == "/api/source?symbol=a%26symbol%3Db%2F..%23"
    posted = export_allowlist.parse("/api/probe", {"model": "m"})
    assert (posted.method, posted.key) == ("POST", "POST /api/probe")


def test_list_matches_routes(explorer_server):
    """Each entry is a route, with that method and all of its parameters; none of them streams."""
    schema = explorer_server.app.openapi()["paths"]
    for path, names in export_allowlist.GET_ROUTES.items():
        declared = [each["name"] for each in schema[path]["get"].get("parameters", [])]
        wanted = [name for name in declared if name not in ("id", "last-event-id")]
        assert sorted(wanted) == sorted(names), path
    for path in export_allowlist.POST_ROUTES:
        assert not schema[path]["post"].get("parameters")
    streams = {p for p in schema if "text/event-stream" in str(schema[p])}
    deeds = {"/api/export", "/api/runs/{id}/stop", "/api/traces", "/api/traces/{id}/edit"}
    assert len(streams) == 2
    assert (
        set(schema) - {*export_allowlist.GET_ROUTES, *export_allowlist.POST_ROUTES}
        == streams | deeds
    )


def test_is_id_accepts_only_server_ids():
    for good in ("gpt2", "a-b_C", "0123456789ab"):
        assert export_allowlist.is_id(good)
    for bad in ("", "a/b", "a.b", "..", "%2e", "a b", "x" * 101, "a\n", None, 3, ["a"]):
        assert not export_allowlist.is_id(bad)
    assert re.fullmatch(export_allowlist.ID, "gpt2")


def test_every_path_used_by_page_is_listed():
    """A path that the page reads must be on the list, or its saved form would be refused."""
    known = {*export_allowlist.GET_ROUTES, *export_allowlist.POST_ROUTES}
    apart = {"/api/traces", "/api/traces/", "/api/generate", "/api/export"}
    apart |= {"/api/runs/{id}", "/api/runs/{id}/stop"}
    # Changes of a model are not saved; recordings of other modules carry their own answer.
    apart |= {"/api/traces/{id}/edit", "/api/watched"}
    apart |= {"/api/traces/{id}{id}", "/api/traces/{id}/{id}"}  # composed in api.ts from these
    found = set()
    for path in WEB.rglob("*"):
        if path.suffix in (".svelte", ".ts"):
            named = re.findall(r"""["`](/api/[^"`?]*)""", path.read_text(encoding="utf-8"))
            found |= {re.sub(r"\$\{[^}]*\}", "{id}", each) for each in named}
    assert len(found) > 20
    assert found - known - apart == set()
