"""Responses match their schema."""

from pydantic import TypeAdapter

from clearformer.explore.app import ROUTERS


def test_responses_match_schema(explorer_server):
    """Heavy answers are written on the model's thread and do not pass through the schema."""
    client = explorer_server.client
    models = {route.path: route.response_model for router in ROUTERS for route in router.routes}
    seen = set()

    def check(route, path, body=None):
        answer = client.get(path) if body is None else client.post(path, body)
        TypeAdapter(models[route]).validate_python(answer)
        seen.add(route)
        return answer

    for family in ("gpt2", "bert", "classifier", "original", "xl", "modern", "nan"):
        asked = {"model": family, "text": "the cat sat on the mat"}
        traced = "/api/traces/{id}"
        id = check("/api/traces", "/api/traces", asked)["id"]
        for name in (
            "", "/attention?layer=1&head=1", "/query?layer=1&head=0&i=1", "/head?layer=0&head=0",
            "/projection?layer=1&head=1&i=-1&which=v&d=0", "/residual", "/residual?layer=0&i=0",
            "/mlp?layer=0&i=0", "/unit?layer=0&i=0&j=1", "/norm?i=0&which=mlp", "/flow",
        ):  # fmt: skip
            check(traced + name.partition("?")[0], f"/api/traces/{id}{name}")
        check(f"{traced}/logits", f"/api/traces/{id}/logits")
        if family == "gpt2":
            check(f"{traced}/edit", f"/api/traces/{id}/edit", {})
        if family != "classifier":
            check(f"{traced}/lens", f"/api/traces/{id}/lens?track=1")
        for name in ("parameters", "blueprint"):
            check(f"/api/models/{{id}}/{name}", f"/api/models/{family}/{name}")
        check("/api/models/{id}/tokens", f"/api/models/{family}/tokens?ids=1,3")
        check("/api/positions", f"/api/positions?model={family}")
        which = {"model": family}
        check("/api/compare", "/api/compare", {"a": which, "b": which, "text": "the cat"})
        count = len(client.get(f"/api/traces/{id}")["tokens"]) if family != "xl" else 22
        check("/api/permute", "/api/permute", {**asked, "permutation": list(range(count))})
        # Sentences of a model that computes NaN have no map.
        for kind in ("tokens", "positions", *(["sentences"] if family != "nan" else [])):
            wanted = {**asked, "kind": kind, "texts": ["the cat", "the mat"]}
            check("/api/map", "/api/map", wanted)
            if kind != "positions":
                check("/api/neighbours", "/api/neighbours", {**wanted, "index": 0})
        if family in ("gpt2", "original"):
            check("/api/beams", "/api/beams", {**asked, "max_tokens": 3})
        edit = {"i": 1, "text": "dog" if family in ("bert", "classifier") else "z"}
        check("/api/probe", "/api/probe", {**asked, "edit": edit})
    for method in ("ig", "occlusion", "grad_x_input"):
        asked = {"model": "classifier", "text": "a good film", "method": method}
        check("/api/attribute", "/api/attribute", asked)
    check("/api/coding", "/api/coding", {"model": "gpt2", "text": "the cat"})
    check("/api/corrupt", "/api/corrupt", {"model": "bert", "text": "the cat"})
    for path in ("info", "models", "source", "runs", "scaling", "patterns", "memory"):
        check(f"/api/{path}", f"/api/{path}")
    check("/api/runs/{id}/metrics", "/api/runs/gpt2/metrics")
    streams = {"/api/generate", "/api/export", "/api/runs/{id}/events", "/api/runs/{id}/stop"}
    assert set(models) - seen == streams
