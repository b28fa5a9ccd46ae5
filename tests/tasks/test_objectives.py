"""Data becomes batches, and a model becomes figures."""

import math
from dataclasses import replace

import pytest
import torch

from clearformer.build import build
from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.core.model import Batch
from clearformer.data import DataFolders
from clearformer.families import bert, classifier, generator
from clearformer.tasks import evaluate, objectives

TRAIN = TrainConfig(lr=1e-2, batch=4, steps=5)


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
    return objectives.load(RunConfig(model=small(generator()), data=data, train=TRAIN), places)


@pytest.fixture
def labels(tmp_path, places):
    path = tmp_path / "a.csv"
    rows = [f"good {i} film {'very ' * (i % 30)},yes\nbad {i} film,no\n" for i in range(40)]
    path.write_text("text,label\n" + "".join(rows))
    data = DataConfig(source=str(path), tokenizer="words", vocabulary=50, validation_share=0.2)
    return objectives.load(RunConfig(model=small(classifier()), data=data, train=TRAIN), places)


def test_a_stream_sets_the_vocabulary(stream):
    assert stream.config.model.vocabulary == stream.tokenizer.size < 40
    batch = stream.batch(3)
    assert batch.tokens.shape == (4, 16)
    assert batch.tokens[:, 1:].equal(batch.targets[:, :-1])
    assert stream.chance() == pytest.approx(math.log(stream.tokenizer.size))


def test_bits_per_byte_is_the_sum_over_every_token_but_the_first(stream):
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


def test_both_parts_of_a_stream_are_of_one_state_of_its_file(tmp_path, places, monkeypatch):
    path = tmp_path / "own.txt"
    path.write_text("some words of mine\n" * 100)

    def change_then_learn(*arguments):
        path.write_text("other words of his\n" * 100)
        return objectives.train_tokenizer("bytes", (), None), ()

    monkeypatch.setattr(objectives, "tokenizer_for", change_then_learn)
    run = RunConfig(model=small(generator()), data=DataConfig(source=str(path)), train=TRAIN)
    with pytest.raises(ValueError, match=r"own.txt: it was changed while it was being read"):
        objectives.Stream(run, places)


def test_labels_set_classes_and_names(labels):
    head = labels.config.model.head
    assert (head.classes, head.names) == (2, ("no", "yes"))
    batch = labels.batch(0)
    assert batch.keep.shape == batch.tokens.shape
    assert batch.targets.shape == (4,)
    assert any("longer than 16 tokens" in note for note in labels.notes)


def test_accuracy_is_the_share_of_right_answers(labels):
    model = build(labels.config.model)
    found = evaluate.predict(model, labels.validation, labels.config)
    sums = found.sum(1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    right = [
        int(row.argmax()) == label
        for row, label in zip(found, labels.validation.labels, strict=True)
    ]
    assert labels.evaluate(model).figures["accuracy"] == pytest.approx(sum(right) / len(right))


def test_evaluating_leaves_the_model_as_it_was(labels):
    model = build(labels.config.model).train()
    state = torch.get_rng_state()
    labels.evaluate(model)
    assert model.training
    assert torch.get_rng_state().equal(state)


def test_text_that_repeats_itself_is_noted(tmp_path, places):
    path = tmp_path / "b.txt"
    path.write_text("the same line over and over, nothing else at all in this text here\n" * 500)
    config = RunConfig(model=small(generator()), data=DataConfig(source=str(path)), train=TRAIN)
    assert "also stands in the training" in objectives.load(config, places).notes[0]


@pytest.mark.parametrize(
    ("model", "source", "message"),
    [
        (generator(), "imdb", "imdb is a table, but a generator learns from a text"),
        (classifier(), "enwik8", "enwik8 has no labels, but a classifier learns from them"),
        (bert(), "multi30k", "multi30k is of pairs, but a masked model reads single texts"),
        (bert(), "python-docs", "but data.masking is absent: give a Masking()"),
    ],
)
def test_a_task_that_does_not_fit_is_refused(places, model, source, message):
    config = RunConfig(model=model, data=DataConfig(source=source), train=TRAIN)
    with pytest.raises(ValueError, match=message):
        objectives.load(config, places)


def test_batches_are_what_the_model_takes(labels):
    batch = labels.batch(1)
    assert isinstance(batch, Batch)
    sums, counts = build(labels.config.model).loss(batch)
    assert counts.tolist() == [4]
    assert torch.isfinite(sums).all()


@pytest.mark.parametrize(
    ("kind", "asked", "size", "expected"),
    [
        ("bpe", None, 300_000, 300_000 // 128),
        ("bpe", None, 10, 512),
        ("bpe", None, 10**9, 50_257),
        ("wordpiece", None, 10**9, 30_522),
        ("bpe", 300, 10**9, 300),
        ("words", None, 10**9, None),
    ],
)
def test_a_vocabulary_suits_its_text_unless_it_is_chosen(monkeypatch, kind, asked, size, expected):
    class Learned:
        pass

    def learn(kind, texts, vocabulary):
        Learned.size, Learned.asked = vocabulary or 7, vocabulary
        return Learned

    monkeypatch.setattr(objectives, "train_tokenizer", learn)
    config = DataConfig(source="x", tokenizer=kind, vocabulary=asked)
    found, notes = objectives.tokenizer_for(config, lambda: ["a text"], size)
    assert found.asked == expected
    said = asked is None and expected is not None
    assert len(notes) == said
    assert not said or f"{expected:,} tokens, to suit a text of {size:,} bytes" in notes[0]
    assert objectives.tokenizer_for(config, lambda: ["a text"], size, given=found) == (found, ())


def test_a_generator_that_reads_a_table_is_told_so(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "a fine film,yes\n" * 99)
    config = RunConfig(model=small(generator()), data=DataConfig(source=str(path)), train=TRAIN)
    notes = objectives.load(config, DataFolders(cache=tmp_path)).notes
    assert f"{path} is a table, and a generator reads it as it is" in notes[0]


def test_the_mean_length_is_that_of_batches_and_not_of_texts(tmp_path, places):
    path = tmp_path / "a.csv"
    data = DataConfig(source=str(path), tokenizer="words", vocabulary=50, validation_share=0.2)
    config = RunConfig(model=replace(small(classifier()), length=64), data=data, train=TRAIN)
    for words, length in ((33, 40), (10, 10), (80, 64)):  # from 32 on in steps of 8, then cut
        text = "good " * (words - 1)
        rows = [f"{text}{i},{('yes', 'no')[i % 2]}\n" for i in range(40)]
        path.write_text("text,label\n" + "".join(rows))
        assert objectives.mean_length(config, places) == length
