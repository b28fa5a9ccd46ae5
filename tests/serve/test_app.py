"""The application: its routes, and the gate before all of them."""

from clearformer.serve.app import create_app

ROUTES = {
    "/v1/models", "/v1/models/{id}", "/v1/completions", "/v1/chat/completions", "/v1/embeddings",
    "/classify", "/predict", "/fill", "/translate", "/health", "/metrics",
}  # fmt: skip


def test_its_routes(models):
    app = create_app({"chat": models["chat"]})
    assert set(app.openapi()["paths"]) == ROUTES


def test_every_route_refuses_other_sites_and_hosts(ask, url, models):
    for path, methods in create_app({"chat": models["chat"]}).openapi()["paths"].items():
        for method in methods:
            address, body = f"{url}{path}", b"{}" if method == "post" else None
            foreign = {"origin": "http://evil.test"}
            assert ask(address, body, foreign, method.upper())[0] == 403, path
            status, found, _ = ask(address, body, {"host": "evil.test"}, method.upper())
            assert (status, found["error"]["code"]) == (400, "foreign_host"), path
            assert "use the address that the server printed" in found["error"]["message"]
