"""Cache of recent traces, limited in number and size."""

import pytest

from clearformer.explore.limits import MAX_CACHED_TRACES
from clearformer.explore.trace import trace
from clearformer.explore.trace_cache import TraceCache, size
from clearformer.http_server.errors import Problem


def test_evicts_oldest_trace(loaded):
    store = TraceCache()
    made = [store.add(loaded("gpt2"), [1, 2, 3], {}) for _ in range(MAX_CACHED_TRACES + 1)]
    assert len(store.traces) == MAX_CACHED_TRACES
    with pytest.raises(Problem) as problem:
        store.get(made[0].id)
    assert problem.value.status == 404
    assert store.get(made[1].id) is made[1]
    store.add(loaded("gpt2"), [1], {})
    assert store.get(made[1].id)  # it was used, so the third one was evicted


def test_recomputed_layer_is_equal(loaded):
    model = loaded("modern")
    cached = TraceCache().add(model, [1, 2, 3], {"mask": "none", "positions": False})
    whole = trace(model.model, [1, 2, 3], mask="none", positions=False)
    for layer in range(2):
        assert cached.layer(layer) is cached.layer(layer)
        assert cached.layer(layer).get("weights", layer).equal(whole.get("weights", layer))
    assert set(cached.overview.recorded["self", 0]) == {"thumbs", "entropy", "previous", "first"}


def test_evicts_layers_over_size_limit(loaded, monkeypatch):
    store = TraceCache()
    cached = store.add(loaded("gpt2"), list(range(30)), {})
    one = size(cached.layer(0))
    cached.layer(1)
    monkeypatch.setattr(
        "clearformer.explore.trace_cache.MAX_CACHED_TRACE_BYTES", cached.bytes() - one // 2
    )
    store.evict()
    assert list(cached.layers) == [1]
