import weakref

import numpy as np
import pytest
import torch

from clearformer.compressor import coding_plan
from clearformer.compressor.coding_plan import Plan, native, plan_for
from clearformer.compressor.protocols import Windows
from clearformer.generate.language_model import LanguageModel


@pytest.fixture
def model(byte_model):
    model = byte_model()
    return LanguageModel(model.module, model.config, model.run_config.generation, model.tokenizer)


def plan(model, length=600, **changes):
    options = {
        "streams": None, "context": None, "stride": None, "online": False, "counts": None,
        "trained": True, "arithmetic": native(1), **changes,
    }  # fmt: skip
    return plan_for(model, np.zeros(length, np.uint8), **options)


def test_long_files_have_more_streams(model):
    assert plan(model).streams == 1
    assert plan(model, 3 * 4096).streams == 3
    assert plan(model, 10**6).streams == 32


def test_counts_are_on_from_scratch_alone(model):
    assert plan(model).counts == 0
    assert plan(model, trained=False).counts == 6
    assert plan(model, trained=False, counts=0).counts == 0
    with pytest.raises(ValueError, match="`counts` is 9, but it must be from 0 to 8"):
        plan(model, counts=9)


def test_counts_of_a_strange_file_do_not_fill_the_memory(model, monkeypatch):
    monkeypatch.setattr(coding_plan, "MAX_MIXED", 3 * 3 * 256)
    assert plan(model, counts=2, streams=3).counts == 2
    assert plan(model, counts=0, streams=9).streams == 9
    with pytest.raises(ValueError, match="4 streams with `counts` 2 have 3,072 probabilities in e"):
        plan(model, counts=2, streams=4)


def test_probe_depends_on_what_predicts_and_leaves_the_weights(model):
    before = [each.clone() for each in model.module.parameters()]
    changes = ({}, {"streams": 2}, {"counts": 2})
    probes = {plan(model, **each).probe(model, 600) for each in changes}
    assert len(probes) == 3
    learning, fixed = plan(model, online=True, context=4), plan(model, context=4)
    assert learning.probe(model, 600) == fixed.probe(model, 600)
    pairs = zip(before, model.module.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)


def test_probe_has_the_caches_of_one_predictor_at_a_time(model, monkeypatch):
    """Two would take twice the memory of the coding that follows."""
    made, predictor, reread, alive = [], Plan.predictor, Windows.reread, []

    def seen(*given):
        found = predictor(*given)
        made.append(weakref.ref(found))
        return found

    def counted(*given):
        alive.append(sum(each() is not None for each in made))
        return reread(*given)

    monkeypatch.setattr(Plan, "predictor", seen)
    monkeypatch.setattr(Windows, "reread", counted)
    plan(model, context=4).probe(model, 600)
    assert len(made) == 1
    assert alive == [0]
