"""Tasks over HTTP."""

from clearformer.explore.arrays import unpack


def test_attribution_route(client):
    asked = {"model": "classifier", "text": "a good film", "method": "ig", "label": "positive"}
    assert client.post("/api/attribute", asked)["completeness"]["error"] < 0.01


def test_corruption_route(client):
    told = client.post("/api/corrupt", {"model": "bert", "text": "the cat sat", "seed": 1})
    assert {token["fate"] for token in told["tokens"]} > {"untouched"}


def test_comparison_route(client):
    a, b = {"model": "gpt2", "checkpoint": "step-10"}, {"model": "gpt2"}
    assert client.post("/api/compare", {"a": a, "b": a, "text": "the cat"})["max_abs"] == 0
    told = client.post("/api/compare", {"a": a, "b": b, "text": "the cat"})
    assert (unpack(told["kl"]) > 0).all()


def test_positions_route(client):
    assert client.get("/api/positions?model=gpt2")["kind"] == "learned"
    client.get("/api/positions?model=none", status=404)


def test_coding(client):
    told = client.post("/api/coding", {"model": "gpt2", "text": "the cat"})
    assert told["tokens"][0]["width"] > 0
    client.post("/api/coding", {"model": "bert", "text": "the cat"}, status=409)
