"""Residual stream and lens over HTTP."""

import numpy as np

from clearformer.explore.arrays import unpack


def test_residual_and_lens(client, traced):
    id = traced("gpt2")["id"]
    told = client.get(f"/api/traces/{id}/residual")
    assert told["norm"] == "pre"
    one = client.get(f"/api/traces/{id}/residual?layer=1&i=2")
    total = unpack(one["before"]) + unpack(one["attn"]) + unpack(one["mlp"])
    np.testing.assert_allclose(total, unpack(one["after"]), atol=1e-5)
    lens = client.get(f"/api/traces/{id}/lens?k=2")
    for i, place in enumerate(lens["tokens"][-1]):
        top = client.get(f"/api/traces/{id}/logits?i={i}")["top"][0]
        assert place[0]["id"] == top["id"]
    client.get(f"/api/traces/{id}/residual?layer=1", status=422)
