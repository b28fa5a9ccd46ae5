"""Traces over HTTP: text, masks, permutations and padding."""

import numpy as np
import pytest

from clearformer.explore.arrays import unpack
from clearformer.explore.trace import trace


@pytest.mark.parametrize("family", ["gpt2", "bert", "classifier", "xl", "sparse", "modern"])
def test_trace_matches_python(client, traced, explorer_server, family):
    told = traced(family)
    found = trace(explorer_server.models[family], "the cat sat on the mat")
    head = client.get(f"/api/traces/{told['id']}/attention?layer=1&head=0")
    np.testing.assert_allclose(
        unpack(head["values"]), found.get("weights", 1, 0).numpy(), atol=1e-6
    )
    row = client.get(f"/api/traces/{told['id']}/query?layer=1&head=0&i=1")
    np.testing.assert_allclose(
        unpack(row["output"]), found.get("head_out", 1, 0)[1].numpy(), atol=1e-6
    )
    assert client.get(f"/api/traces/{told['id']}") == told


def test_translation_trace_has_three_parts(client, traced):
    told = traced("original", target="a dog", pad_to=16)
    assert [part["part"] for part in told["parts"]] == ["encoder", "decoder", "cross"]
    cross = client.get(f"/api/traces/{told['id']}/attention?layer=0&head=0&part=cross")
    weights = unpack(cross["values"])
    assert weights.shape == (16, 16)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    real = len(traced("original", target="a dog")["tokens"])
    assert (weights[:, real:] == 0).all()
    ids = [token["id"] for token in traced("original", target="a dog")["target_tokens"]]
    again = traced("original", target_tokens=ids)
    assert [token["id"] for token in again["target_tokens"]] == ids


def test_token_can_be_masked(client, traced, loaded):
    before = traced("bert")
    masked = traced("bert", mask_at=[2])
    assert masked["tokens"][2]["text"] == "[MASK]"
    place = client.get(f"/api/traces/{masked['id']}/logits?i=2")
    vocabulary = loaded("bert").config.vocabulary
    assert len(unpack(place["values"])) == vocabulary
    assert unpack(place["values"]).max() == 0
    again = traced("bert")
    assert {**again, "id": ""} == {**before, "id": ""}
    client.post("/api/traces", {"model": "gpt2", "text": "a", "mask_at": [0]}, status=409)


def test_accepts_tokens_mask_positions_and_permutation(client, traced):
    straight = traced("modern", "abc")
    ids = [token["id"] for token in straight["tokens"]]
    told = client.post("/api/traces", {"model": "modern", "tokens": ids, "permutation": [2, 1, 0]})
    assert "".join(token["text"] for token in told["tokens"]) == "cba"
    free = traced("modern", "abc", mask="none", positions=False)
    head = client.get(f"/api/traces/{free['id']}/attention?layer=0&head=0")
    assert (unpack(head["values"]) > 0).all()


def test_rejects_too_many_tokens_with_limit(client):
    error = client.post("/api/traces", {"model": "modern", "text": "x" * 513}, status=413)["error"]
    assert error["code"] == "too_long"
    assert error["limit"] == 512
    assert "512" in error["message"]
    client.post("/api/traces", {"model": "modern", "text": "x", "pad_to": 600}, status=413)
    asked = {"model": "original", "text": "x", "target_tokens": [0] * 600}
    client.post("/api/traces", asked, status=413)


def test_probe_and_permute(client):
    asked = {"model": "gpt2", "text": "the cat", "edit": {"i": -1, "text": "z"}}
    assert client.post("/api/probe", asked)["max_before"] == 0
    assert client.post("/api/probe", {**asked, "mask": "none"})["max_before"] > 0
    asked = {"model": "gpt2", "text": "the cat", "permutation": [2, 0, 1]}
    assert client.post("/api/permute", asked)["max_error"] < 1e-5
    assert client.post("/api/permute", {**asked, "positions": True})["max_error"] > 1e-3


def test_head_projection_and_logits(client, traced):
    id = traced("modern", "abc")["id"]
    assert client.get(f"/api/traces/{id}/head?layer=0&head=1")["weights"]["shape"] == [3, 3]
    told = client.get(f"/api/traces/{id}/projection?layer=0&head=1&i=1&which=k&d=2")
    assert told["value"] != told["turned"]  # rotary
    assert client.get(f"/api/traces/{id}/logits")["i"] == 2


def test_continuation_follows_the_text(traced, client):
    """Generated tokens are traced after their prompt, by id: their text may split differently."""
    whole = traced("xl", "the cat sat on the mat")["text_tokens"]
    ids = [token["id"] for token in whole]
    prompt = traced("xl", "the cat sat on the", continuation=ids[18:])
    assert [token["id"] for token in prompt["text_tokens"]] == ids
    asked = {"model": "gpt2", "text": "the", "continuation": [10**6]}
    assert client.post("/api/traces", asked, status=422)["error"]["field"] == "continuation"
