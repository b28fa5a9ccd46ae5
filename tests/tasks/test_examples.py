"""What tasks of examples share: logits of rows without padding, segments, and the split."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import clearformer as cf
from clearformer.config import DataConfig, TokenClassifier
from clearformer.data.examples import Example, Examples, padded
from clearformer.data.tagged_files import TaggedSentences
from clearformer.tasks.examples import row_logits, split, two_segments


@pytest.fixture
def config(tiny_bert):
    run = cf.load(tiny_bert).run_config
    head = TokenClassifier(classes=3)
    return replace(run, model=replace(run.model, head=head), data=DataConfig(source="a.conll"))


def example(length, segment=0):
    tokens = np.arange(1, 1 + length, dtype=np.int32)
    return Example(tokens, np.full(length, segment, dtype=np.int32), np.zeros(length, np.int64))


def test_row_logits_are_independent_of_other_rows(config):
    model = cf.build(config.model)
    rows = Examples((example(3), example(9), example(5)), padded)
    together = row_logits(model, rows, config)
    assert [tuple(each.shape) for each in together] == [(3, 3), (9, 3), (5, 3)]
    for row, logits in zip(rows.rows, together, strict=True):
        (alone,) = row_logits(model, Examples((row,), padded), config)
        torch.testing.assert_close(logits, alone, rtol=1e-5, atol=1e-6)


def test_segments_reach_the_model(config):
    model = cf.build(config.model)
    first, second = row_logits(model, Examples((example(4), example(4, segment=1)), padded), config)
    assert not first.allclose(second)
    assert two_segments(config.model)
    assert not two_segments(replace(config.model, segments=None))


def test_split_keeps_equal_texts_together(config):
    words = tuple((f"word{n % 10}",) for n in range(40))
    everything = TaggedSentences("all", words, words)
    training, held_back = split(config, lambda path: everything)
    assert len(training) + len(held_back) == 40
    assert not set(training.texts) & set(held_back.texts)
    assert len(held_back) >= 4


def test_uses_whole_validation_file(config):
    config = replace(config, data=replace(config.data, validation="b.conll"))
    assert split(config, lambda path: path) == ("a.conll", "b.conll")


def test_rejects_missing_data(config):
    config = replace(config, data=replace(config.data, source=""))
    with pytest.raises(ValueError, match="a token classifier learns from a file of yours: give it"):
        split(config, lambda path: path)
