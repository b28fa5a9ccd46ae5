"""Tracing shows what the model computed, and leaves no trace in it."""

import dataclasses

import pytest
import torch

from clearformer.build import build
from clearformer.core.basic import attend
from clearformer.core.model import Seq2Seq
from clearformer.core.patterns import Causal, Full
from clearformer.explore.trace import attentions, basic_stages, trace
from clearformer.families import FAMILIES, preset

LENGTH = 12


def small(family):
    config = preset(family)
    changes = {
        "vocabulary": 20,
        "layers": 2,
        "width": 16,
        "heads": 4,
        "hidden": 32,
        "length": LENGTH,
        "key_heads": 2 if config.key_heads else None,
    }
    if hasattr(config, "decoder_layers"):
        changes["decoder_layers"] = 2
    return dataclasses.replace(config, **changes)


@pytest.fixture(params=list(FAMILIES))
def model(request):
    return build(small(request.param))


@pytest.fixture
def tokens():
    return torch.arange(LENGTH)[None] % 20


def first(output):
    return output[0] if isinstance(output, tuple) else output


def ordinary(model, tokens):
    with torch.inference_mode():
        model.eval()
        return first(model(tokens, tokens) if isinstance(model, Seq2Seq) else model(tokens))


def test_traced_output_is_the_ordinary_output(model, tokens):
    traced = first(trace(model, tokens).output)
    torch.testing.assert_close(traced, ordinary(model, tokens), rtol=0, atol=1e-5)


def test_every_stage_follows_from_the_one_before(model, tokens):
    found = trace(model, tokens)
    assert len(found.recorded) == len(attentions(model))
    for stages in found.recorded.values():
        width = stages["q"].shape[-1]
        raw = torch.einsum("bhqd,bhkd->bhqk", stages["q"], stages["k"])
        torch.testing.assert_close(stages["scores_raw"], raw)
        torch.testing.assert_close(stages["scores_scaled"] * width**0.5, stages["scores_raw"])
        scores = stages["scores_scaled"] + stages.get("bias", torch.tensor(0.0))
        visible = stages["scores_masked"].isfinite()
        torch.testing.assert_close(stages["scores_masked"][visible], scores[visible])
        assert (stages["weights"][~visible] == 0).all()
        sums = stages["weights"].sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums))
        mixed = torch.einsum("bhqk,bhkd->bhqd", stages["weights"], stages["v"])
        torch.testing.assert_close(stages["head_out"], mixed)


def test_a_trace_leaves_the_model_as_it_was(model, tokens):
    model.train()
    before = {name: vars(module).copy() for name, module in model.named_modules()}
    own = [attention.kernel for attention in attentions(model).values()]
    trace(model, tokens, mask="none", positions=False)
    with pytest.raises(ValueError, match="outside the vocabulary"):
        trace(model, tokens + 100, positions=False)
    for name, module in model.named_modules():
        assert vars(module) == before[name], name
    assert [attention.kernel for attention in attentions(model).values()] == own


def test_mask_and_positions_can_be_taken_away():
    model = build(small("gpt2"))
    tokens = torch.tensor([[3, 1, 2, 0]])
    order = [2, 0, 3, 1]
    straight, shuffled = (
        trace(model, each, mask="none", positions=False).output
        for each in (tokens, tokens[:, order])
    )
    torch.testing.assert_close(shuffled, straight[:, order])
    causal = trace(model, tokens, mask="causal", positions=False).get("weights", 0, 0)
    assert (causal.triu(1) == 0).all()
    everything = trace(model, tokens, mask="none").get("weights", 0, 0)
    assert (everything > 0).all()


def test_layers_restrict_what_is_kept():
    model = build(small("gpt2"))
    found = trace(model, torch.tensor([[1, 2]]), layers=[1])
    assert list(found.recorded) == [("self", 1)]
    with pytest.raises(ValueError, match="self layer 0 was not recorded: there are self 1"):
        found.get("weights", 0, 0)
    with pytest.raises(ValueError, match="there is no stage 'weight': there are attn_in, attn_out"):
        found.get("weight", 1, 0)
    with pytest.raises(ValueError, match="head is 9, but the model has heads 0 to 3"):
        found.get("weights", 1, 9)


def test_basic_stages_are_the_first_equations():
    x = torch.randn(5, 3)
    stages = basic_stages(x, Full())
    torch.testing.assert_close(stages["head_out"], attend(x))
    masked = basic_stages(x, Causal())["weights"]
    assert (masked.triu(1) == 0).all()
    torch.testing.assert_close(masked.sum(-1), torch.ones(5))
