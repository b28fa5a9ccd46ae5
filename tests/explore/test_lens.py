"""Residual stream and logit lens: the lens ends at the model's output."""

import numpy as np
import pytest
import torch

from clearformer.explore import lens
from clearformer.explore.arrays import unpack
from clearformer.explore.trace_cache import TraceCache
from clearformer.http_server.errors import Problem

TEXT = "the cat sat on the mat"


def keep(loaded, id):
    tokens = (TEXT, "the dog sat") if id == "original" else TEXT
    return TraceCache().add(loaded(id), tokens, {})


@pytest.mark.parametrize(
    "family", ["generator", "gpt2", "bert", "xl", "sparse", "modern", "original"]
)
def test_last_row_of_lens_is_model_output(loaded, family):
    cached = keep(loaded, family)
    told = lens.lens(cached, 3, track=4)
    logits = cached.overview.logits.float()
    assert [place[0]["id"] for place in told["tokens"][-1]] == logits.argmax(-1).tolist()
    shares = logits.softmax(-1)
    np.testing.assert_allclose(unpack(told["track"]["p"])[-1], shares[:, 4], atol=1e-6)
    ranks = (shares > shares[:, 4:5]).sum(-1)
    np.testing.assert_array_equal(unpack(told["track"]["rank"])[-1], ranks)
    assert told["layers"] == 2
    assert unpack(told["entropy"]).shape == (3, len(logits))


def test_pre_norm_stream_is_sum_of_parts(loaded):
    cached = keep(loaded, "gpt2")
    parts = {name: unpack(value) for name, value in lens.vectors(cached, 1, 2, None).items()
             if isinstance(value, dict)}  # fmt: skip
    total = parts["before"] + parts["attn"] + parts["mlp"]
    np.testing.assert_allclose(total, parts["after"], atol=1e-5)
    np.testing.assert_allclose(parts["before"] + parts["attn"], parts["mid"], atol=1e-5)


def test_norms_match_stream(loaded):
    cached = keep(loaded, "gpt2")
    told = lens.residual(cached, None)
    assert [row["stage"] for row in told["rows"]] == [
        "resid_pre", "resid_mid", "resid_post", "resid_mid", "resid_post",
    ]  # fmt: skip
    after = cached.layer(1).get("resid_post", 1)
    np.testing.assert_allclose(unpack(told["norms"])[-1], after.norm(dim=-1), rtol=1e-6)
    assert unpack(told["attn"]).shape == (2, len(after))
    decoder = lens.residual(keep(loaded, "original"), "decoder")
    assert len(decoder["rows"]) == 7
    assert decoder["cross"]["shape"] == decoder["attn"]["shape"]


def test_response_size_is_limited(loaded, monkeypatch):
    monkeypatch.setattr(lens, "MAX_CELLS", 3 * 22 * 2)
    assert lens.lens(keep(loaded, "modern"), 50, None)["k"] == 2


def test_rejects_models_without_lens(loaded):
    with pytest.raises(Problem, match="needs a model that predicts tokens"):
        lens.lens(keep(loaded, "classifier"), 3, None)
    cached = keep(loaded, "gpt2")
    with pytest.raises(Problem, match="there is no token 1000000"):
        lens.lens(cached, 3, 10**6)
    with pytest.raises(Problem, match="layer is 7, but it must be from 0 to 1"):
        lens.vectors(cached, 7, 0, None)
    with pytest.raises(Problem, match="there is no stream 'cross'"):
        lens.residual(cached, "cross")


def test_unembed_is_deterministic(loaded):
    model = loaded("gpt2").model.module
    stream = torch.randn(2, 3, 16)
    assert lens.unembed(model, stream).equal(lens.unembed(model, stream))
