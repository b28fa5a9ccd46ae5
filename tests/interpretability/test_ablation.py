"""Ablation tables: equal to switching off each component in plain torch."""

import pytest
import torch

from clearformer.builder import build
from clearformer.explore.trace import trace
from clearformer.explore.traced_model import TracedModel
from clearformer.interpretability import ablate
from clearformer.interventions import edit, head, norm

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
        for number in range(4):
            expected = difference(without("head_out", layer, number))
            assert float(found.heads[layer, number]) == pytest.approx(expected, abs=1e-4)
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
    with pytest.raises(ValueError, match="position is 2 without right"):
        ablate(gpt2, TOKENS, position=2)
    with pytest.raises(ValueError, match="the text has one token, so there is no next one"):
        ablate(gpt2, TOKENS[:1])
    with pytest.raises(ValueError, match="reference has the texts of a mean: pass method"):
        ablate(gpt2, TOKENS, reference=[TOKENS])


def test_what_is_not_finite_is_listed(gpt2):
    """Only cross-attention has no MLP; one that overflows is a result."""
    with torch.no_grad():
        gpt2.stack.blocks[2].feed_forward.down.bias[0] = torch.nan
    found = ablate(gpt2, TOKENS)
    assert [row["component"] for row in found.rows()].count("mlp") == 3
    assert found.baseline != found.baseline
    assert found.mlps.isnan().tolist() == [True, True, False]


def test_inside_an_edit_that_holds_the_norms(gpt2, plain):
    """An edit around counts positions of the final norm in the whole text."""
    frozen = {norm(): trace(gpt2, TOKENS)}
    with edit(gpt2, freeze=frozen):
        found = ablate(gpt2, TOKENS, right=4, wrong=7, position=3)
    for layer in range(3):
        with torch.no_grad(), edit(gpt2, freeze=frozen), edit(gpt2, zero=head(layer, 1)):
            logits = gpt2(TOKENS[None])[0, 3]
        assert float(found.heads[layer, 1]) == pytest.approx(float(logits[4] - logits[7]), abs=1e-4)
    final = norm(None, "final").at(-1)  # of the text, not of the position that is measured
    with edit(gpt2, scale={final: 3.0}):
        again = ablate(gpt2, TOKENS, right=4, wrong=7, position=3)
    torch.testing.assert_close(
        again.heads, ablate(gpt2, TOKENS, right=4, wrong=7, position=3).heads
    )
