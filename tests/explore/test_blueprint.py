"""The plan of a model is its config, and the numbers on it are those of the trace."""

import numpy as np
import pytest

from clearformer import config as c
from clearformer.explore import blueprint
from clearformer.explore.arrays import unpack
from clearformer.explore.trace_cache import TraceCache

FAMILIES = ["generator", "gpt2", "bert", "classifier", "original", "xl", "sparse", "modern"]
TEXT = "the cat sat on the mat"
PRE = ["norm", "attention", "add", "norm", "mlp", "add"]
POST = ["attention", "add", "norm", "mlp", "add", "norm"]


def keep(loaded, id, text=TEXT):
    tokens = (text, "the dog sat") if id == "original" else text
    return TraceCache().add(loaded(id), tokens, {})


@pytest.mark.parametrize("family", FAMILIES)
def test_plan_follows_config(loaded, family):
    config = loaded(family).config
    plan = blueprint.blueprint(config)
    assert [stack["part"] for stack in plan["stacks"]] == (
        ["encoder", "decoder"] if family == "original" else ["self"]
    )
    first = plan["stacks"][0]
    assert [step["kind"] for step in first["blocks"][0]["steps"]] == (
        PRE if config.residual == "pre" else POST
    )
    assert len(first["blocks"]) == config.layers
    assert first["embedding"]["shape"] == [config.vocabulary, config.width]
    assert (first["norm"] is not None) == (config.residual == "pre")
    mlp = next(step for step in first["blocks"][0]["steps"] if step["kind"] == "mlp")
    assert (mlp["hidden"], mlp["gated"]) == (config.hidden, config.activation == "swiglu")


def test_plan_names_what_is_special(loaded):
    def steps(id, stack=0, layer=0):
        plan = blueprint.blueprint(loaded(id).config)
        return {each["kind"]: each for each in plan["stacks"][stack]["blocks"][layer]["steps"]}

    assert steps("sparse", layer=0)["attention"]["pattern"] == "causal & local 4"
    assert steps("sparse", layer=1)["attention"]["pattern"] == "causal & strided 4"
    assert steps("modern")["attention"]["key_heads"] == 1
    assert steps("modern")["norm"]["norm"] == "rms"
    assert steps("original")["attention"]["pattern"] is None  # the encoder sees everything
    decoder = blueprint.blueprint(loaded("original").config)["stacks"][1]["blocks"][0]["steps"]
    parts = [step["part"] for step in decoder if step["kind"] == "attention"]
    assert parts == ["decoder", "cross"]
    assert blueprint.blueprint(loaded("xl").config)["memory"] == 8
    bert = blueprint.blueprint(loaded("bert").config)
    assert bert["stacks"][0]["embedding"]["segments"] == 2
    assert bert["stacks"][0]["embedding"]["norm"] == "layer"
    assert blueprint.blueprint(loaded("classifier").config)["head"]["outputs"] == 2
    either = c.Causal() & (c.Local(window=2) | c.Strided(stride=3))
    assert blueprint.pattern_name(either) == "causal & local 2 | strided 3"


@pytest.mark.parametrize("family", FAMILIES)
def test_flow_is_the_trace(loaded, family):
    cached = keep(loaded, family)
    config = cached.loaded.config
    plan, told = blueprint.blueprint(config), blueprint.flow(cached)
    assert told["components"] == 16
    for stack, own in zip(plan["stacks"], told["stacks"], strict=True):
        part = stack["part"]
        embedded = cached.layer(0).recorded[part, 0]["resid_pre"][0]
        np.testing.assert_allclose(unpack(own["embedding"]), embedded, atol=1e-6)
        assert (own["summed"] is not None) == (stack["embedding"]["norm"] is not None)
        for layer, (block, values) in enumerate(zip(stack["blocks"], own["blocks"], strict=True)):
            stages = cached.layer(layer).recorded[part, layer]
            by_step = {
                (step["kind"], step.get("which") or step.get("part")): unpack(each)
                for step, each in zip(block["steps"], values, strict=True)
            }
            pre = config.residual == "pre"
            wanted = {
                ("attention", part): stages["attn_out"],
                ("mlp", None): stages["mlp_out"],
                ("add" if pre else "norm", "attention"): stages["resid_mid"],
                ("add" if pre else "norm", "mlp"): stages["resid_post"],
            }
            for key, tensor in wanted.items():
                np.testing.assert_allclose(by_step[key], tensor[0], atol=1e-5)
    if family not in ("classifier",):
        best = cached.overview.logits.argmax(-1).tolist()
        assert [each["id"] for each in told["predictions"]] == best


def test_flow_of_long_text_fits_into_a_response(loaded, monkeypatch):
    monkeypatch.setattr(blueprint, "MAX_RESPONSE_BYTES", 20_000)
    assert 1 <= blueprint.flow(keep(loaded, "gpt2", TEXT * 2))["components"] < 16
