"""Encoded pairs: start and end tokens, padding, and batches by token budget."""

import numpy as np
import pytest

from clearformer.data import EncodedPairs, PairBatches, Pairs, encode_pairs, evaluation_pairs
from clearformer.data.pairs import distinctive_tokens, pad
from clearformer.text import train

START, END = 91, 90


@pytest.fixture
def many():
    random = np.random.default_rng(0)
    sizes = random.integers(1, 20, (2, 500))
    sources, targets = (
        [random.integers(0, 90, size).astype(np.int32) for size in side] for side in sizes
    )
    return EncodedPairs(sources, targets, START, END)


def test_source_and_target_get_start_and_end_tokens():
    texts = Pairs("p", ("ab", "b"), ("c", "abc"))
    tokenizer = train("characters", [*texts.sources, *texts.targets])
    encoded = encode_pairs(texts, tokenizer, START, END)
    (batch,) = evaluation_pairs(encoded, 8)
    order = batch.ids.tolist()
    assert sorted(order) == [0, 1]
    source, target, targets = (side[order.index(0)] for side in (batch.source, batch.target,
                                                                 batch.targets))  # fmt: skip
    assert source.tolist() == [1, 2, END]
    assert target.tolist() == [START, 3, 0, 0]
    assert targets.tolist() == [3, END, -100, -100]
    assert batch.source_attention_mask.sum() == 5
    assert batch.target_attention_mask.tolist() == (batch.targets != -100).tolist()


def test_every_pair_once_per_epoch(many):
    batches = PairBatches(many, 64, 200, seed=3)
    for epoch in range(3):
        steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
        seen = np.concatenate([batches.sample_ids(step) for step in steps])
        assert sorted(seen.tolist()) == list(range(len(many)))


def test_batches_depend_only_on_seed_and_step(many):
    one, other = PairBatches(many, 64, 200, seed=3), PairBatches(many, 64, 200, seed=3)
    steps = [0, 70, 3, 200, 0]
    for step in steps:
        assert one.sample_ids(step).tolist() == other.sample_ids(step).tolist()
        fresh = PairBatches(many, 64, 200, seed=3)
        assert fresh.sample_ids(step).tolist() == one.sample_ids(step).tolist()
    different = PairBatches(many, 64, 200, seed=4)
    assert different.sample_ids(0).tolist() != one.sample_ids(0).tolist()
    # Another epoch puts other pairs together.
    together = [{frozenset(one.sample_ids(epoch * one.steps_per_epoch + i).tolist())
                 for i in range(one.steps_per_epoch)} for epoch in range(2)]  # fmt: skip
    assert len(together[0] & together[1]) < one.steps_per_epoch / 4


def test_batches_respect_token_budget_with_little_padding(many):
    batches = PairBatches(many, 64, 200, seed=0)
    real = padded = 0
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step)
        assert batch.source.size <= 200
        assert batch.target.size <= 200
        longest = max(batch.source.shape[1], batch.target.shape[1])
        shortest = min(many.lengths[batch.ids])
        assert longest - shortest <= 4 or step == 0
        real += batch.source_attention_mask.sum() + batch.target_attention_mask.sum()
        padded += batch.source.size + batch.target.size
    assert real / padded > 0.65  # the two sides are unrelated here
    few = PairBatches(many, 7, None, seed=0)
    assert max(len(few.sample_ids(step)) for step in range(few.steps_per_epoch)) == 7


def test_pair_longer_than_budget_is_its_own_batch():
    ids = [np.zeros(size, dtype=np.int32) for size in (2, 50, 3)]
    batches = PairBatches(EncodedPairs(ids, ids, START, END), 8, 20, seed=0)
    sizes = sorted(len(batches.sample_ids(step)) for step in range(batches.steps_per_epoch))
    assert sizes == [1, 2]


def test_rejects_negative_step_and_seed(many):
    with pytest.raises(ValueError, match="the step is -1, but steps are counted from 0"):
        PairBatches(many, 64, 200, seed=0).batch(-1)
    with pytest.raises(ValueError, match="the seed is -1"):
        PairBatches(many, 64, 200, seed=-1)


def test_evaluation_sees_every_pair_once_by_length(many):
    found = list(evaluation_pairs(many, 64))
    ids = np.concatenate([batch.ids for batch in found])
    assert sorted(ids.tolist()) == list(range(len(many)))
    assert (np.diff(many.lengths[ids]) >= 0).all()


def test_sha256_depends_on_ids_of_both_sides(many):
    same = EncodedPairs(list(many.sources), list(many.targets), START, END)
    assert same.sha256() == many.sha256()
    turned = EncodedPairs(many.targets, many.sources, START, END)
    shifted = EncodedPairs(
        [np.concatenate(many.sources[:2]), np.array([], np.int32), *many.sources[2:]],
        many.targets, START, END,
    )  # fmt: skip
    assert len({many.sha256(), turned.sha256(), shifted.sha256()}) == 3


def test_pad():
    padded, attention_mask = pad([[1, 2, 3], [4]], filling=9)
    assert padded.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert attention_mask.tolist() == [[True, True, True], [True, False, False]]


def test_distinctive_tokens_of_each_side():
    sources = [np.array([1, 1, 2, 5], np.int32)] * 3
    targets = [np.array([3, 5, 4, 4], np.int32)] * 3
    assert distinctive_tokens(EncodedPairs(sources, targets, START, END)) == ((1, 2), (4, 3))
