"""Attribution: integrated gradients are complete and match the reference."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from clearformer.builder import build
from clearformer.config import Ngrams
from clearformer.explore import attribution
from clearformer.explore.arrays import unpack
from clearformer.explore.attribution import attribute, integrated_gradients, occlusion
from clearformer.explore.limits import Limits
from clearformer.explore.requests import AttributeRequest
from clearformer.explore.traced_model import TracedModel
from clearformer.http_server.errors import Problem

TEXT = "a good film , a bad end"


def asked(method, label):
    return AttributeRequest(model="classifier", text=TEXT, method=method, label=label)


def score_of(model, label):
    return lambda x, attention_mask: attribution._logits(model, x, attention_mask)[:, label]


@pytest.mark.parametrize("label", ["negative", "positive"])
def test_integrated_gradients_are_complete(loaded, label):
    told = attribute(loaded("classifier"), asked("ig", label), Limits())
    assert told["label"] == label
    assert told["completeness"]["error"] < 0.01
    assert unpack(told["values"]).sum() == pytest.approx(told["completeness"]["sum"], abs=1e-5)
    assert sum(each["p"] for each in told["probs"]) == pytest.approx(1)


def test_integrated_gradients_match_captum(loaded):
    captum = pytest.importorskip("captum.attr")
    model = loaded("classifier").model.module
    x = torch.randn(1, 5, 16)
    values, total = integrated_gradients(score_of(model, 1), x)
    reference = captum.IntegratedGradients(lambda given: score_of(model, 1)(given, None))
    expected = reference.attribute(x, n_steps=400)
    np.testing.assert_allclose(values, expected[0].sum(-1).detach(), atol=0.02)
    assert values.sum().item() == pytest.approx(total, abs=0.01)


def test_integrated_gradients_follow_a_jump():
    """Behind a norm the score hardly depends on the length of x: it jumps near zero."""
    torch.manual_seed(0)
    slope, x = torch.randn(4, 3), torch.randn(1, 4, 3)

    def score(x, attention_mask):
        return (x / (x.square().mean((1, 2), keepdim=True) + 1e-9).sqrt() * slope).sum((1, 2))

    values, total = integrated_gradients(score, x)
    assert values.sum().item() == pytest.approx(total, rel=0.01)


def test_gradient_times_input_is_exact_for_linear_score():
    slope = torch.randn(4, 3)
    values = attribution.gradient_times_input(
        lambda x, attention_mask: (x * slope).sum((1, 2)), torch.ones(1, 4, 3)
    )
    torch.testing.assert_close(values, slope.sum(-1))


def test_occlusion_is_score_drop_without_token(loaded):
    model = loaded("classifier")
    told = attribute(model, asked("occlusion", 0), Limits())
    inner, score = model.model.module, score_of(model.model.module, 0)
    ids = torch.tensor([[each["id"] for each in told["tokens"]]])
    with torch.no_grad():
        x = inner.embedding(ids)
        attention_mask = torch.ones(1, ids.shape[1], dtype=torch.bool)
        attention_mask[0, 2] = False
        fall = score(x, None) - score(x, attention_mask)
        assert unpack(told["values"])[2] == pytest.approx(fall.item(), abs=1e-6)
        assert occlusion(score, x[:, :1]).shape == (1,)  # nothing would be left of one token


def test_pool_weights_are_reported(loaded):
    told = attribute(loaded("classifier"), asked("grad_x_input", None), Limits())
    assert told["pool"]["kind"] == "mean"
    assert unpack(told["pool"]["values"]).tolist() == pytest.approx([1 / 7] * 7)
    model = loaded("classifier").model.module
    x = model.embedding(torch.tensor([[1, 2, 3]]))
    won = unpack(attribution.pool(model, x, "max")["values"])
    assert won.sum() == pytest.approx(1)
    assert unpack(attribution.pool(model, x, "first")["values"]).tolist() == [1, 0, 0]


@pytest.mark.parametrize("method", ["ig", "grad_x_input", "occlusion"])
def test_scores_of_ngrams_are_attributed_to_their_tokens(loaded, method):
    own = loaded("classifier")
    config = replace(own.config, ngrams=Ngrams(buckets=997, weight=1.0, head_weight=2.0))
    module = build(config).eval()
    alone = build(own.config).eval()
    alone.load_state_dict(module.state_dict(), strict=False)
    with torch.no_grad():
        module.ngrams.evidence.normal_()
    with_ngrams, without = (
        replace(own, model=TracedModel(each, settings, own.model.tokenizer))
        for each, settings in ((module, config), (alone, own.config))
    )
    found = attribute(with_ngrams, asked(method, 1), Limits())
    expected = attribute(without, asked(method, 1), Limits())

    ids = torch.tensor([[each["id"] for each in found["tokens"]]])
    with torch.no_grad():
        probabilities = module(ids).softmax(-1)[0].tolist()
        added = module.ngrams.shares(ids)[0, :, 1]
        if method == "occlusion":
            rows = ~torch.eye(ids.shape[1], dtype=torch.bool)
            scores = module.ngrams(ids.expand(len(rows), -1), rows)
            added = (module.ngrams(ids) - scores)[:, 1]
    assert sorted(each["p"] for each in found["probs"]) == pytest.approx(sorted(probabilities))
    values = [unpack(each["values"]) for each in (found, expected)]
    np.testing.assert_allclose(values[0] - 2 * values[1], added, atol=1e-4)


def test_rejects_models_without_classes(loaded):
    with pytest.raises(Problem, match="is not a classifier"):
        attribute(loaded("gpt2"), asked("ig", None), Limits())
    with pytest.raises(Problem, match="there is no class 'neutral': there are negative, positive"):
        attribute(loaded("classifier"), asked("ig", "neutral"), Limits())
