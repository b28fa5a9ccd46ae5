"""Sizes that a plan takes from the data, and assumptions without data."""

from dataclasses import replace

import pytest

from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.data import DataFolders
from clearformer.plan.data_sizes import epoch_steps, pair_lengths, with_vocabulary
from clearformer.plan.footprint import ASSUMED_LENGTHS


@pytest.fixture
def config(small, tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 2000)
    data = DataConfig(source=str(tmp_path / "text.txt"))
    train = TrainConfig(learning_rate=1e-3, batch_size=8, epochs=2)
    return RunConfig(model=small("gpt2"), data=data, train=train)


def test_vocabulary_of_tokenizer(config):
    assert with_vocabulary(config, DataFolders())[0].model.vocabulary == 256
    named = replace(config, data=replace(config.data, tokenizer="bpe", vocabulary=500))
    assert with_vocabulary(named, DataFolders())[0].model.vocabulary == 500
    absent = replace(config, data=DataConfig(source="none.txt", tokenizer="bpe"))
    same, notes = with_vocabulary(absent, DataFolders())
    assert same.model.vocabulary == config.model.vocabulary
    assert notes[0].startswith(f"a vocabulary of {config.model.vocabulary} is assumed: ")


def test_pair_lengths_only_for_pairs(config):
    assert pair_lengths(config, DataFolders()) == (ASSUMED_LENGTHS, ASSUMED_LENGTHS, [])


def test_epoch_steps_from_data(config, tmp_path):
    tokens = 0.9 * 48_000
    per_epoch = tokens / (config.train.batch_size * config.model.length)
    assert epoch_steps(config, DataFolders(cache=tmp_path)) == pytest.approx(
        2 * per_epoch, rel=0.05
    )
