"""Traces show what the model computed, and leave it unchanged."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from clearformer.builder import build, caches
from clearformer.config import HiddenMemory
from clearformer.core.basic import attend
from clearformer.core.block import post_norm
from clearformer.core.model import Seq2Seq
from clearformer.core.patterns import Causal, Full
from clearformer.explore.recording import blocks
from clearformer.explore.trace import attentions, basic_stages, trace
from clearformer.explore.traced_model import TracedModel
from clearformer.families import FAMILIES, preset
from clearformer.text import Bytes

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


def test_traced_output_equals_model_output(model, tokens):
    traced = first(trace(model, tokens).output)
    torch.testing.assert_close(traced, ordinary(model, tokens), rtol=0, atol=1e-5)


@torch.no_grad()
def test_stages_are_consistent(model, tokens):
    found = trace(model, tokens)
    assert len(found.recorded) == len(attentions(model))
    for (part, layer), stages in found.recorded.items():
        assert {"attn_in", "attn_out", "q_proj", "k_proj", "thumbs"} <= stages.keys()
        own = attentions(model)[part, layer]
        merged = stages["head_out"].transpose(1, 2).flatten(2)
        torch.testing.assert_close(own.output(merged), stages["attn_out"])
        if part != "cross":
            projected = own.project(stages["attn_in"])
            queries = projected[..., : own.heads * own.head_width]
            torch.testing.assert_close(stages["q_proj"].transpose(1, 2).flatten(2), queries)
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


@torch.no_grad()
def test_residual_stream_is_sum_of_parts(model, tokens):
    found = trace(model, tokens)
    for part, layer, block in blocks(model):
        own = found.recorded[part, layer]
        middle = own["resid_mid"]
        if part == "decoder":
            cross = found.recorded["cross", layer]
            torch.testing.assert_close(cross["resid_pre"], middle)
            middle = cross["resid_mid"]
        sums = own["resid_pre"] + own["attn_out"], middle + own["mlp_out"]
        if block.residual is post_norm:
            sums = block.attention_norm(sums[0]), block.feed_forward_norm(sums[1])
        torch.testing.assert_close(own["resid_mid"], sums[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(own["resid_post"], sums[1], rtol=0, atol=1e-5)
        down = block.feed_forward.down(own["mlp_hidden"])
        torch.testing.assert_close(down, own["mlp_out"])


def test_mlp_pre_is_before_activation():
    model = build(small("generator"))
    found = trace(model, torch.tensor([[1, 2, 3]]), ["mlp_pre", "mlp_hidden"])
    before, after = found.get("mlp_pre", 0), found.get("mlp_hidden", 0)
    assert (before < 0).any()
    torch.testing.assert_close(before.relu(), after)


def test_only_rotary_changes_projected_queries_and_keys():
    for family, same in (("gpt2", True), ("modern", False), ("sparse", True)):
        found = trace(build(small(family)), torch.arange(6))
        equal = [
            torch.equal(found.get(p, 1), found.get(n, 1))
            for p, n in (("q_proj", "q"), ("k_proj", "k"))
        ]
        assert equal == [same, same], family


def test_padding_gets_zero_weight(model, tokens):
    shorter = tokens[:, :9]
    given = (shorter, shorter) if isinstance(model, Seq2Seq) else shorter
    plain, padded = trace(model, given), trace(model, given, pad_to=LENGTH)
    for place, stages in padded.recorded.items():
        assert stages["weights"].shape[-1] == LENGTH
        assert (stages["weights"][..., 9:] == 0).all()
        expected = plain.recorded[place]["weights"]
        torch.testing.assert_close(stages["weights"][:, :, :9, :9], expected)
    with pytest.raises(ValueError, match="pad_to is 3, but there are 9 tokens"):
        trace(model, given, pad_to=3)


def test_memory_is_traced_by_segment(scrambled):
    config = dataclasses.replace(small("xl"), length=4, cache=HiddenMemory(length=4))
    module = scrambled(build(config))
    model = TracedModel(module, config)
    found = trace(model, list(range(10)))
    assert found.get("weights", 1).shape == (4, 2, 6)  # two queries, four remembered
    assert found.get("bias", 1).shape == (4, 2, 6)
    assert found.tokens() == ["8", "9"]
    assert found.key_tokens() == ["4", "5", "6", "7", "8", "9"]
    memories = caches(config)
    with torch.inference_mode():
        for part in torch.arange(10)[None].split(4, dim=1):
            expected = module.eval()(part, caches=memories)
            for cache in memories:
                cache.advance()
    torch.testing.assert_close(found.logits, expected[0], rtol=0, atol=1e-5)
    assert found.get("k_proj", 1).shape == found.get("k", 1).shape
    torch.testing.assert_close(found.get("k_proj", 1), found.get("k", 1))  # keys are not turned
    with pytest.raises(ValueError, match="a model with a memory reads whole segments"):
        trace(model, list(range(10)), pad_to=12)


def test_trace_encodes_text_like_model():
    tokenizer = Bytes()
    config = dataclasses.replace(small("gpt2"), vocabulary=256)
    loaded = SimpleNamespace(model=build(config), config=config, tokenizer=tokenizer)
    found = trace(loaded, "to be", ["weights"])
    assert found.tokens() == list("to be")
    assert found.get("weights", layer=1, head=1).shape == (5, 5)
    assert list(found.recorded["self", 0]) == ["weights"]


def test_rejects_invalid_arguments():
    model = build(small("gpt2"))
    for given, more, sentence in (
        ([1, 2], {"capture": ["weight"]}, "there is no stage 'weight'"),
        ([1, 2], {"mask": "some"}, "mask is 'some', but it must be model, none or causal"),
        ([1, 2], {"layers": [7]}, "layer is 7, but the model has layers 0 to 1"),
        ("text", {}, "the model has no tokenizer: pass token ids"),
        ([[1], [2]], {}, r"tokens have shape \(2, 1\), but one sequence is traced"),
        (([1], [2]), {}, "got a pair, but this model has no decoder"),
    ):
        with pytest.raises(ValueError, match=sentence):
            trace(model, given, **more)
    with pytest.raises(ValueError, match="int is not a model and has none"):
        trace(7, [1])
    found = trace(model, [1, 2])
    with pytest.raises(ValueError, match="weights is computed in every layer: choose one"):
        found.get("weights")
    with pytest.raises(ValueError, match="attn_in has no heads: leave head out"):
        found.get("attn_in", 0, 0)


def test_trace_does_not_change_model(model, tokens):
    model.train()
    before = {name: vars(module).copy() for name, module in model.named_modules()}
    own = [attention.kernel for attention in attentions(model).values()]
    trace(model, tokens, mask="none", positions=False)
    with pytest.raises(ValueError, match="outside the vocabulary"):
        trace(model, tokens + 100, positions=False)
    for name, module in model.named_modules():
        assert vars(module) == before[name], name
    assert [attention.kernel for attention in attentions(model).values()] == own


def test_mask_and_positions_can_be_disabled():
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


def test_layers_limit_recording():
    model = build(small("gpt2"))
    found = trace(model, torch.tensor([[1, 2]]), layers=[1])
    assert list(found.recorded) == [("self", 1)]
    with pytest.raises(ValueError, match="self layer 0 was not recorded: there are self 1"):
        found.get("weights", 0, 0)
    with pytest.raises(ValueError, match="there is no stage 'weight': there are attn_in, attn_out"):
        found.get("weight", 1, 0)
    with pytest.raises(ValueError, match="head is 9, but the model has heads 0 to 3"):
        found.get("weights", 1, 9)


def test_basic_stages_match_equations():
    x = torch.randn(5, 3)
    stages = basic_stages(x, Full())
    torch.testing.assert_close(stages["head_out"], attend(x))
    masked = basic_stages(x, Causal())["weights"]
    assert (masked.triu(1) == 0).all()
    torch.testing.assert_close(masked.sum(-1), torch.ones(5))
