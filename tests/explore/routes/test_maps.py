"""The routes of maps of embeddings."""

import numpy as np
import pytest

from clearformer.explore.arrays import unpack
from clearformer.explore.embedding_map import embedding_map
from clearformer.explore.map_responses import MapResponse, NeighboursResponse

TEXTS = ["the cat sat", "a good film", "to be or not"]


@pytest.mark.parametrize("kind", ["tokens", "positions", "sentences"])
def test_map_and_neighbours_are_those_of_python(client, loaded, kind):
    body = {"model": "gpt2", "text": "the cat", "kind": kind, "texts": TEXTS}
    answer = client.post("/api/map", {**body, "checkpoint": "step-10", "axes": "step-20"})
    MapResponse.model_validate(answer)
    axes = embedding_map(loaded("gpt2", "step-20").model, kind, TEXTS).axes
    found = embedding_map(loaded("gpt2", "step-10").model, kind, TEXTS, axes=axes)
    shown = [each["index"] for each in answer["map"]["labels"]]
    np.testing.assert_allclose(unpack(answer["map"]["points"]), found.points[shown], atol=1e-6)
    assert answer["map"]["shares"] == pytest.approx(found.shares)
    assert answer["map"]["total"] == len(found.labels)
    assert answer["axes"] == "step-20"
    body |= {"checkpoint": "step-10", "index": 2, "count": 2}
    near = client.post("/api/neighbours", body)
    NeighboursResponse.model_validate(near)
    assert [each["index"] for each in near["neighbours"]] == [
        each.index for each in found.neighbours(2, 2)
    ]


def test_shown_tokens_are_the_same_at_every_checkpoint(client):
    body = {"model": "gpt2", "text": "the cat sat", "axes": "step-20"}
    shown = [
        client.post("/api/map", {**body, "checkpoint": step})["map"]["labels"]
        for step in ("step-10", "step-20")
    ]
    assert shown[0] == shown[1]
    assert sum(each["given"] for each in shown[0]) > 2


def test_model_without_position_vectors_says_so(client):
    body = {"model": "modern", "text": "", "kind": "positions"}
    answer = client.post("/api/map", body)
    MapResponse.model_validate(answer)
    assert answer["map"] is None
    assert answer["positions"] == "rotary"
    refused = client.post("/api/neighbours", {**body, "index": 0}, status=409)
    assert "has no vectors of its positions" in refused["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"kind": "sentences", "texts": [""]}, 409, "is empty"),
        ({"kind": "sentences"}, 409, "there are no sentences"),
        ({"part": "decoder"}, 422, "there is no stack 'decoder': there is self"),
        ({"axes": "step-99"}, 404, "there is no checkpoint"),
        ({"kind": "sentences", "texts": ["x"] * 41}, 422, "at most 40"),
    ],
)
def test_errors(client, body, status, message):
    answer = client.post("/api/map", {"model": "generator", "text": "the cat", **body}, status)
    assert message in answer["error"]["message"]
