"""Masking in the explorer equals masking in training."""

from collections import Counter

import numpy as np
import pytest

from clearformer.data.masking import MaskingPolicy, TokenMasker
from clearformer.explore.limits import Limits
from clearformer.explore.masking import corrupt
from clearformer.http_server.errors import Problem

TEXT = "the cat sat on the mat and the dog sat on the log . to be or not to be"


def test_corruption_matches_training(loaded):
    model = loaded("bert")
    fates = Counter()
    for seed in range(60):
        told = corrupt(model, TEXT, seed, Limits())["tokens"]
        ids = np.array([[each["id"] for each in told]])
        masker = TokenMasker(model.model.tokenizer, MaskingPolicy())
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
