"""Attention stages and their summaries."""

import math

import pytest
import torch

from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Full
from clearformer.explore import stages


def heads(queries, keys, width=4, groups=2):
    return torch.randn(1, 2, queries, width), *(torch.randn(1, groups, keys, width) for _ in "kv")


def test_fully_masked_query_has_zero_weights():
    q, k, v = heads(3, 3)
    attention_mask = torch.tensor([[False, False, True]])
    found = stages.attention_stages(q, k, v, Mask(Causal(), attention_mask), None)
    assert (found["scores_masked"][0, :, 0] == -math.inf).all()
    assert (found["weights"][0, :, 0] == 0).all()
    assert found["weights"][0, :, 2].sum(-1).tolist() == pytest.approx([1, 1])


def test_more_queries_than_keys_are_supported():
    found = stages.attention_stages(*heads(5, 2), Mask(Full()), None)
    assert found["weights"].shape == (1, 2, 5, 2)
    assert found["scores_masked"].isfinite().all()


def test_thumbs_are_max_pooled_weights():
    weights = torch.rand(1, 2, 130, 130)
    small = stages.summaries(weights, ["thumbs"])["thumbs"]
    assert small.shape == (1, 2, 44, 44)
    assert small[0, 1, 3, 5] == weights[0, 1, 9:12, 15:18].max()
    assert small[0, 0, 43, 43] == weights[0, 0, 129:, 129:].max()


def test_summaries_of_known_attention():
    looks_back = torch.eye(4).roll(-1, dims=1)[None, None]  # row i sees i - 1, the first the last
    found = stages.summaries(looks_back, ["previous", "first", "entropy"])
    assert found["previous"].item() == 1
    assert found["first"].item() == pytest.approx(1 / 4)
    assert found["entropy"].tolist() == [[[0, 0, 0, 0]]]
    even = torch.full((1, 1, 2, 8), 1 / 8)
    assert stages.summaries(even, ["entropy"])["entropy"].flatten().tolist() == pytest.approx(
        [3, 3]
    )
    # Two queries after a memory of six: the one before the first query is key 5.
    assert stages.summaries(even, ["previous"])["previous"].item() == pytest.approx(1 / 8)


def test_count_nonfinite_ignores_mask():
    found = {
        "weights": torch.tensor([1.0, math.nan, math.nan]),
        "scores_masked": torch.tensor([-math.inf, 1.0]),
        "q": torch.tensor([math.inf, -math.inf, 0.0]),
    }
    assert stages.count_nonfinite(found) == {"weights": (2, 0), "q": (0, 2)}
