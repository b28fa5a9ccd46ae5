"""Filling in masked tokens."""

import re

import numpy as np
import pytest
import torch

from clearformer.builder import build
from clearformer.config import MaskedToken, Pretraining
from clearformer.generate.fill import fill
from clearformer.text import Bytes, WordPieces


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieces.train(["the cat sat on the mat and the dog"], 64)


@pytest.mark.parametrize("head", [MaskedToken(), Pretraining()])
def test_candidates_are_the_most_likely_tokens(small, scrambled, tokenizer, head):
    config = small("bert", vocabulary=tokenizer.size, head=head)
    model = scrambled(build(config)).eval()
    found = fill(model, config, tokenizer, "the [MASK] sat on [MASK]", top_k=4)
    ids = np.concatenate((tokenizer.prefix_ids, tokenizer.encode("the [MASK] sat on [MASK]"), [3]))
    logits = model(torch.from_numpy(ids)[None])
    logits = logits[0] if isinstance(logits, tuple) else logits
    places = np.flatnonzero(ids == tokenizer.mask)
    assert len(found) == len(places) == 2
    for candidates, place in zip(found, places, strict=True):
        shares = logits[0, place].softmax(-1)
        expected = shares.topk(4)
        assert [each.id for each in candidates] == expected.indices.tolist()
        assert [each.probability for each in candidates] == pytest.approx(expected.values.tolist())
        assert [each.piece for each in candidates] == tokenizer.pieces(expected.indices.numpy())


@pytest.mark.parametrize(
    ("text", "top", "words"),
    [
        ("the cat", 3, "the text has no [MASK] to fill: write [MASK] where a word is missing"),
        ("[MASK]", 0, "top_k is 0, but it must be from 1 to 38"),
        ("the [MASK] " * 10, 3, "the text has 22 tokens, but bert-base reads 12 at a time"),
    ],
)
def test_rejects_texts_that_cannot_be_filled(small, tokenizer, text, top, words):
    config = small("bert", vocabulary=tokenizer.size)
    with pytest.raises(ValueError, match=re.escape(words)):
        fill(build(config), config, tokenizer, text, top)


def test_rejects_model_without_mask_token(small, tokenizer):
    config = small("gpt2", vocabulary=256)
    with pytest.raises(ValueError, match="gpt2-small is a generator: it can generate and embed, n"):
        fill(build(config), config, Bytes(), "a [MASK]", 3)
    config = small("bert", vocabulary=256)
    with pytest.raises(ValueError, match=r"bert-base has a bytes tokenizer, which has no \[MASK\]"):
        fill(build(config), config, Bytes(), "a [MASK]", 3)
    config = small("classifier", vocabulary=tokenizer.size)
    with pytest.raises(ValueError, match="is a classifier: it can classify and embed, not fill"):
        fill(build(config), config, tokenizer, "a [MASK]", 3)
