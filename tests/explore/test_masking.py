"""Masking in the explorer equals masking in training."""

import dataclasses
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from clearformer.config import Masking
from clearformer.data.masking import MaskingPolicy, TokenMasker
from clearformer.explore.limits import Limits
from clearformer.explore.masking import corrupt
from clearformer.http_server.errors import Problem

TEXT = "the cat sat on the mat and the dog sat on the log . to be or not to be"


def test_corruption_matches_training(loaded):
    model = loaded("bert")
    rate = model.entry.run_config.data.masking.rate
    fates = Counter()
    for seed in range(60):
        told = corrupt(model, TEXT, seed, Limits())["tokens"]
        ids = np.array([[each["id"] for each in told]])
        masker = TokenMasker(model.model.tokenizer, MaskingPolicy(rate=rate))
        shown, _ = masker.corrupt(ids, np.ones_like(ids, bool), seed, 0)
        now = [each["became"]["id"] if each["became"] else each["id"] for each in told]
        assert now == shown[0].tolist()
        assert told[0]["fate"] == "untouched"  # [CLS]
        fates.update(each["fate"] for each in told)
    hidden = sum(fates.values()) - fates["untouched"]
    assert fates["mask"] / hidden == pytest.approx(0.8, abs=0.1)
    assert fates["random"] > 0
    assert fates["kept"] > 0


def test_rejects_model_without_mask_token(loaded):
    with pytest.raises(Problem, match=r"gpt2 has no mask token"):
        corrupt(loaded("gpt2"), TEXT, 0, Limits())


def test_share_of_masked_tokens_is_that_of_the_training(loaded):
    """Not 15 % for every model."""
    model = loaded("bert")
    run = dataclasses.replace(
        model.entry.run_config,
        data=dataclasses.replace(model.entry.run_config.data, masking=Masking(rate=0.9)),
    )
    entry = SimpleNamespace(is_native=True, run_config=run)
    other = dataclasses.replace(model, entry=entry)
    told = corrupt(other, TEXT, 0, Limits())
    assert told["policy"] == pytest.approx({"rate": 0.9, "mask": 0.8, "random": 0.1, "kept": 0.1})
    assert told["known"]
    hidden = [each for each in told["tokens"] if each["fate"] != "untouched"]
    assert len(hidden) > len(told["tokens"]) / 2
    imported = dataclasses.replace(model, entry=SimpleNamespace(is_native=False))
    assert not corrupt(imported, TEXT, 0, Limits())["known"]
