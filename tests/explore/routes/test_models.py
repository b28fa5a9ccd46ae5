"""Models and server information over HTTP."""

import inspect

from clearformer import __version__
from clearformer.core.kernels import weights


def test_info_contains_limits(client):
    told = client.get("/api/info")
    assert told["version"] == __version__
    assert told["limits"] == {
        "max_tokens": 512, "max_text": 8000, "max_bytes": 4194304, "max_new_tokens": 200,
    }  # fmt: skip


def test_models_and_their_parameters(client):
    rows = {row["id"]: row for row in client.get("/api/models")}
    assert {"generator", "gpt2", "bert", "classifier", "original", "xl", "sparse", "modern"} <= set(
        rows
    )
    told = client.get("/api/models/gpt2/parameters")
    assert told["total"] == rows["gpt2"]["n_params"] == sum(r["count"] for r in told["rows"])


def test_source_matches_inspect(client):
    told = client.get("/api/source?symbol=core.kernels.weights")
    assert told["text"] == inspect.getsource(weights)
    assert "core.kernels.weights" in client.get("/api/source")["symbols"]
    client.get("/api/source?symbol=os.system", status=404)
