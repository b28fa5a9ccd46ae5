"""Many variants in one pass equal one edit and one pass each."""

import pytest
import torch

from clearformer.explore.traced_model import as_traced_model, encode_input
from clearformer.interpretability.batched import measured, one_by_one
from clearformer.interpretability.metrics import LogitDifference, Loss
from clearformer.interventions import head, mlp, residual
from clearformer.interventions.changes import Add, Scale
from clearformer.interventions.instrument import blocks

TOKENS = torch.tensor([5, 1, 3, 9, 7, 3, 11])


@pytest.mark.parametrize("family", ["gpt2", "modern", "bert", "sparse", "classifier", "xl"])
@pytest.mark.parametrize("metric", [LogitDifference(1, 0, 4), Loss()])
def test_equal_to_one_by_one(family, metric, of_family):
    found = of_family(family)
    traced = as_traced_model(found.module)
    given = encode_input(traced, TOKENS)
    if family == "classifier" and isinstance(metric, Loss):
        pytest.skip("a class has no next token")
    for layer in range(len(list(blocks(found.module)))):
        variants = [
            (head(layer, 0), lambda point: Scale(point, 0.0)),
            (head(layer, 1).at(2), lambda point: Scale(point, 3.0)),
            (mlp(layer), lambda point: Scale(point, 0.5)),
            (residual(layer, "post"), lambda point: Add(point, torch.tensor(0.3))),
            (residual(layer).at(-1), lambda point: Scale(point, -1.0)),
        ]
        fast = measured(traced, given, metric, layer, variants)
        simple = one_by_one(traced, given, metric, variants)
        torch.testing.assert_close(fast, simple, atol=1e-4, rtol=1e-4)
        assert len({round(float(each), 4) for each in simple}) > 2


def test_more_variants_than_rows_at_once(gpt2, monkeypatch):
    monkeypatch.setattr("clearformer.interpretability.batched.ROWS", 2)
    traced = as_traced_model(gpt2)
    given = encode_input(traced, TOKENS)
    variants = [(head(1, each), lambda point: Scale(point, 0.0)) for each in (0, 1, 2)]
    fast = measured(traced, given, Loss(), 1, variants)
    torch.testing.assert_close(fast, one_by_one(traced, given, Loss(), variants))
