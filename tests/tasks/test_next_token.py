"""Next token prediction: batches, bits per byte and notes."""

import math
from dataclasses import replace

import pytest
import torch

from clearformer.builder import build
from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.data import DataFolders
from clearformer.families import generator
from clearformer.tasks import registry, sources

TRAIN = TrainConfig(learning_rate=1e-2, batch_size=4, steps=5)


def small(config):
    return replace(config, length=16, layers=1, width=16, heads=2, hidden=32)


@pytest.fixture
def places(tmp_path):
    return DataFolders(cache=tmp_path)


@pytest.fixture
def stream(tmp_path, places):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {i} of the text\n" for i in range(300)))
    data = DataConfig(source=str(path), tokenizer="characters")
    return registry.load(RunConfig(model=small(generator()), data=data, train=TRAIN), places)


def test_tokenizer_sets_vocabulary(stream):
    assert stream.config.model.vocabulary == stream.tokenizer.size < 40
    batch = stream.batch(3)
    assert batch.tokens.shape == (4, 16)
    assert batch.tokens[:, 1:].equal(batch.targets[:, :-1])
    assert stream.chance() == pytest.approx(math.log(stream.tokenizer.size))


def test_bits_per_byte_matches_hand_computation(stream):
    model = build(stream.config.model)
    measured = stream.evaluate(model)
    found = measured.figures
    tokens = torch.from_numpy(stream.validation.read(0, len(stream.validation)))
    total, length = 0.0, stream.config.model.length
    with torch.inference_mode():
        model.eval()
        for start in range(0, len(tokens) - 1, length):
            # The last window is moved back to be full, and scores only what is left.
            begin = min(start, len(tokens) - 1 - length)
            window = tokens[begin : begin + length + 1]
            bits = -model(window[None, :-1])[0].log_softmax(-1)
            scored = bits.gather(1, window[1:, None])[:, 0][start - begin :]
            total += float(scored.sum())
    assert found["bits_per_byte"] == pytest.approx(
        total / math.log(2) / (stream.validation.text_bytes - 1), rel=1e-5
    )
    assert found["loss"] == pytest.approx(total / (len(tokens) - 1), rel=1e-5)


def test_rejects_file_changed_between_training_and_validation_part(tmp_path, places, monkeypatch):
    path = tmp_path / "own.txt"
    path.write_text("some words of mine\n" * 100)

    def change_then_learn(*arguments):
        path.write_text("other words of his\n" * 100)
        return sources.train_tokenizer("bytes", (), None), ()

    monkeypatch.setattr(sources, "tokenizer_for", change_then_learn)
    run = RunConfig(model=small(generator()), data=DataConfig(source=str(path)), train=TRAIN)
    with pytest.raises(ValueError, match=r"own.txt: it was changed while it was being read"):
        registry.load(run, places)


def test_repeated_text_is_reported(tmp_path, places):
    path = tmp_path / "b.txt"
    path.write_text("the same line over and over, nothing else at all in this text here\n" * 500)
    config = RunConfig(model=small(generator()), data=DataConfig(source=str(path)), train=TRAIN)
    assert "is also in the training text" in registry.load(config, places).notes[0]


def test_training_generator_on_table_is_reported(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "a fine film,yes\n" * 99)
    config = RunConfig(model=small(generator()), data=DataConfig(source=str(path)), train=TRAIN)
    notes = registry.load(config, DataFolders(cache=tmp_path)).notes
    assert f"{path} is a table; a generator is trained on the raw file" in notes[0]


def test_sample_is_deterministic_text(stream):
    model = build(stream.config.model)
    assert stream.sample(model)
    assert stream.sample(model) == stream.sample(model)
