"""Batches of examples: every row once in an epoch, padded, with targets of any shape."""

import numpy as np
import pytest

from clearformer.data.examples import (
    IGNORE,
    Example,
    ExampleBatches,
    Examples,
    evaluation_examples,
    pad_examples,
    padded,
    stacked,
)


def examples(collate, target, count=11):
    rows = []
    for number in range(count):
        tokens = np.arange(1, 2 + number % 4, dtype=np.int32)
        rows.append(Example(tokens, np.ones_like(tokens), target(number, tokens)))
    return Examples(tuple(rows), collate, padding=99)


@pytest.fixture
def of_rows():
    return examples(stacked, lambda number, tokens: np.array(number))


def test_every_row_appears_once_per_epoch(of_rows):
    batches = ExampleBatches(of_rows, 4, 0, 8)
    for epoch in range(2):
        steps = range(epoch * 3, epoch * 3 + 3)
        seen = [int(each) for step in steps for each in batches.batch(step).targets]
        assert sorted(seen) == list(range(11))
    again = ExampleBatches(of_rows, 4, 0, 8).batch(4)
    assert again.tokens.tolist() == batches.batch(4).tokens.tolist()


def test_padding_is_marked_and_never_a_target():
    found = examples(padded, lambda number, tokens: tokens.astype(np.int64))
    batch = pad_examples(found, np.array([0, 3]), 8)
    assert batch.tokens.tolist() == [[1, 99, 99, 99], [1, 2, 3, 4]]
    assert batch.attention_mask.tolist() == [[True] + [False] * 3, [True] * 4]
    assert batch.targets.tolist() == [[1, IGNORE, IGNORE, IGNORE], [1, 2, 3, 4]]
    assert batch.segments.tolist() == [[1, 0, 0, 0], [1, 1, 1, 1]]


def test_evaluation_sees_every_row(of_rows):
    seen = [int(i) for batch in evaluation_examples(of_rows, 3, 8) for i in batch.ids]
    assert sorted(seen) == list(range(11))


def test_checksum_depends_on_targets_and_rows(of_rows):
    others = [
        examples(stacked, lambda number, tokens: np.array(number + 1)),
        examples(stacked, lambda number, tokens: np.array(number), count=10),
    ]
    assert len({each.sha256() for each in (of_rows, *others)}) == 3
