"""Views of maps: what is kept with a model, and which points are shown."""

import pytest

from clearformer.explore import map_views
from clearformer.explore.limits import MAX_MAP_POINTS, Limits
from clearformer.explore.requests import MapRequest, NeighboursRequest
from clearformer.http_server.errors import Problem

LIMITS = Limits()


def request(**more):
    return MapRequest(model="gpt2", text="the cat sat", **more)


def test_map_is_computed_once_and_only_the_last_sentences_are_kept(loaded, monkeypatch):
    model = loaded("gpt2")
    model.view_cache.clear()
    computed = []
    real = map_views.embedding_map
    monkeypatch.setattr(
        map_views, "embedding_map", lambda *a, **k: computed.append(a[1]) or real(*a, **k)
    )
    for texts in (["one"], ["two"], ["two"]):
        map_views.reference(model, request(kind="sentences", texts=texts), LIMITS)
    for _ in range(2):
        found = map_views.reference(model, request(), LIMITS)
        map_views.points(model, request(), found, LIMITS)
    assert computed == ["sentences", "sentences", "tokens"]
    assert len(model.view_cache) == 2


def test_many_positions_are_shown_at_equal_distances(loaded, monkeypatch):
    monkeypatch.setattr(map_views, "MAX_MAP_POINTS", 20)
    found = map_views.reference(loaded("gpt2"), request(kind="positions"), LIMITS)
    assert found.shown == list(range(0, 64, 4))


def test_shown_tokens_begin_with_the_text(loaded):
    found = map_views.reference(loaded("gpt2"), request(), LIMITS)
    assert found.shown[: len(found.given)] == found.given
    assert len(found.given) < len(found.shown) <= MAX_MAP_POINTS


def test_neighbours_of_a_point_that_is_not_there(loaded):
    model = loaded("gpt2")
    wanted = NeighboursRequest(model="gpt2", text="the cat", index=300)
    found = map_views.reference(model, wanted, LIMITS)
    with pytest.raises(Problem, match="index is 300, but it must be from 0 to 299"):
        map_views.neighbours(model, wanted, found, LIMITS)
