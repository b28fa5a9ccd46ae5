"""The last few traces are kept, within a number and a size."""

import pytest

from clearformer.explore.errors import Problem
from clearformer.explore.trace import trace
from clearformer.explore.trace_cache import KeptTraces, size


def test_the_oldest_trace_goes(opened):
    store = KeptTraces()
    made = [store.make(opened("gpt2"), [1, 2, 3], {}) for _ in range(9)]
    assert len(store.kept) == 8
    with pytest.raises(Problem) as problem:
        store.find(made[0].id)
    assert problem.value.status == 404
    assert store.find(made[1].id) is made[1]
    store.make(opened("gpt2"), [1], {})
    assert store.find(made[1].id)  # it was looked at, so the third one went


def test_a_layer_is_computed_again_and_is_the_same(opened):
    model = opened("modern")
    kept = KeptTraces().make(model, [1, 2, 3], {"mask": "none", "positions": False})
    whole = trace(model.subject, [1, 2, 3], mask="none", positions=False)
    for layer in range(2):
        assert kept.layer(layer) is kept.layer(layer)
        assert kept.layer(layer).get("weights", layer).equal(whole.get("weights", layer))
    assert set(kept.overview.recorded["self", 0]) == {"thumbs", "entropy", "previous", "first"}


def test_layers_go_when_there_is_no_more_room(opened, monkeypatch):
    store = KeptTraces()
    kept = store.make(opened("gpt2"), list(range(30)), {})
    one = size(kept.layer(0))
    kept.layer(1)
    monkeypatch.setattr("clearformer.explore.trace_cache.KEPT_TRACE_BYTES", kept.bytes() - one // 2)
    store.tidy()
    assert list(kept.layers) == [1]
