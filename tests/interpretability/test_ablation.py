"""Ablation tables: equal to switching off each component in plain torch."""

import pytest
import torch

from clearformer.builder import build
from clearformer.explore.traced_model import TracedModel
from clearformer.interpretability import ablate

TOKENS = torch.tensor([5, 17, 3, 9, 17, 3, 11])


def without(stage, layer, index, value=0.0):
    def change(each, number, x):
        if (each, number) == (stage, layer):
            x = x.clone()
            x[index] = value
        return x

    return change


def test_equals_plain_torch(gpt2, plain):
    def difference(change=lambda stage, layer, x: x):
        logits = plain(gpt2, TOKENS, change)
        return float((logits[-1, 4] - logits[-1, 7]).detach())

    found = ablate(gpt2, TOKENS, right=4, wrong=7)
    assert found.metric == "logit difference"
    assert found.baseline == pytest.approx(difference(), abs=1e-4)
    for layer in range(3):
        for head in range(4):
            expected = difference(without("head_out", layer, head))
            assert float(found.heads[layer, head]) == pytest.approx(expected, abs=1e-4)
        expected = difference(without("mlp_out", layer, slice(None)))
        assert float(found.mlps[layer]) == pytest.approx(expected, abs=1e-4)
    rows = found.rows()
    assert len(rows) == 15
    changes = [abs(row["change"]) for row in rows]
    assert changes == sorted(changes, reverse=True)


def test_mean_ablation_equals_plain_torch(gpt2, plain):
    seen = {}

    def keep(stage, layer, x):
        seen[stage, layer] = x
        return x

    plain(gpt2, TOKENS, keep)
    mean = seen["head_out", 1][2].mean(0)
    expected = plain(gpt2, TOKENS, without("head_out", 1, 2, mean))[-1, 4]
    found = ablate(gpt2, TOKENS, right=4, method="mean")
    assert float(found.heads[1, 2]) == pytest.approx(float(expected.detach()), abs=1e-4)


@pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])
def test_of_a_translator(part, small, scrambled):
    config = small("original")
    model = TracedModel(scrambled(build(config)).eval(), config)
    pair = (torch.tensor([3, 1, 4]), torch.tensor([2, 7, 1, 8]))
    found = ablate(model, pair, part=part)
    assert found.metric == "loss"
    assert found.heads.shape == (2, config.heads)
    assert bool(found.mlps.isnan().all()) == (part == "cross")
    assert (found.heads - found.baseline).abs().min() > 0


def test_messages(gpt2):
    with pytest.raises(ValueError, match="method is 'drop', but it must be zero or mean"):
        ablate(gpt2, TOKENS, method="drop")
    with pytest.raises(ValueError, match="there is no part 'cross' in this model: there is self"):
        ablate(gpt2, TOKENS, part="cross")
    with pytest.raises(ValueError, match="wrong is given without right"):
        ablate(gpt2, TOKENS, wrong=3)
