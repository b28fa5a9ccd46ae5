"""Translation task: batches from pairs, training, and metrics."""

from dataclasses import replace

import pytest
import torch

from clearformer.builder import build
from clearformer.config import DataConfig, Dropout, RunConfig, TrainConfig
from clearformer.core.heads import Head
from clearformer.core.model import PairBatch
from clearformer.data import DataFolders
from clearformer.families import original
from clearformer.tasks import registry
from clearformer.tasks.translation import TranslationPairs, loss, pairs

TRAIN = TrainConfig(learning_rate=1e-2, batch_size=64, batch_tokens=300, steps=5)
MODEL = replace(original("tiny"), length=16, layers=1, decoder_layers=1, width=16, heads=2,
                hidden=32, dropout=Dropout())  # fmt: skip


@pytest.fixture
def reversing(tmp_path):
    """Letters, and the same backwards."""
    words = [f"{a}{b}{c}" for a in "abcdef" for b in "abc" for c in "abcd"]
    (tmp_path / "a.in").write_text("\n".join([*words, "a" * 40, ""]) + "\n")
    (tmp_path / "a.out").write_text("\n".join([*(w[::-1] for w in words), "a" * 40, "x"]) + "\n")
    return f"{tmp_path / 'a.in'},{tmp_path / 'a.out'}"


@pytest.fixture
def task(reversing):
    data = DataConfig(source=reversing, tokenizer="characters")
    return registry.load(RunConfig(model=MODEL, data=data, train=TRAIN), DataFolders())


def test_data_sets_vocabulary_and_start_and_end_tokens(task):
    assert isinstance(task, TranslationPairs)
    size = task.tokenizer.size
    assert task.config.model.vocabulary == size + 2
    assert task.config.generation.target_ids == (size + 1, size)
    assert task.notes == (
        "1 of 74 pairs have an empty side and are left out (the first: 74)",
        "1 of 66 pairs have more than 16 tokens on a side and are left out",
    )
    assert len(task.training) == 65
    assert len(task.validation) == 7


def test_model_accepts_batches(task):
    batch = task.batch(0)
    assert isinstance(batch, PairBatch)
    sums, counts = build(task.config.model).loss(batch)
    assert counts.tolist() == [int((batch.targets != -100).sum())]
    assert torch.isfinite(sums).all()
    # Teacher forcing: what goes in is what is to come out, a place later.
    assert batch.target[:, 1:].equal(batch.targets[:, :-1])


def test_pair_lengths_are_measured_from_data(tmp_path):
    lines = [("a" * (1 + place % 3), "b" * (2 + 4 * (place % 3))) for place in range(60)]
    lines.append(("a" * 50, "b"))  # does not fit, and does not count
    source = tmp_path / "pairs.tsv"
    source.write_text("".join(f"{a}\t{b}\n" for a, b in lines))
    data = DataConfig(source=str(source), tokenizer="characters", validation=str(source))
    config = RunConfig(
        model=MODEL, data=data, train=replace(TRAIN, batch_size=20, batch_tokens=None)
    )
    # One mark comes to every side: sources have 2 to 4 tokens, targets 3, 7 or 11.
    assert registry.task_of(MODEL).pair_lengths(config, DataFolders()) == ((4, 11), (3, 7))


def test_validation_loss_has_no_label_smoothing(task):
    model = build(task.config.model).train()
    plain = task.evaluate(model).figures["loss"]
    for head in model.modules():
        if isinstance(head, Head):
            head.smoothing = 0.1
    assert task.evaluate(model).figures["loss"] == plain
    assert model.training
    # By hand, one pair at a time and without padding.
    total, count = 0.0, 0
    model.eval()
    start_id, end_id = task.config.generation.target_ids
    with torch.no_grad():
        for source, target in zip(task.encoded.sources, task.encoded.targets, strict=True):
            logits = model(torch.tensor([[*source, end_id]]), torch.tensor([[start_id, *target]]))
            wanted = torch.tensor([*target, end_id])
            total -= float(logits[0].log_softmax(-1).gather(1, wanted[:, None]).sum())
            count += len(wanted)
    assert plain == pytest.approx(total / count, rel=1e-4)
    assert loss(model, task.encoded, batch=2) == pytest.approx(plain, rel=1e-4)


def test_model_learns_to_reverse_strings(reversing):
    data = DataConfig(source=reversing, validation=reversing, tokenizer="characters")
    model = replace(MODEL, width=32)
    task = registry.load(RunConfig(model=model, data=data, train=TRAIN), DataFolders())
    model = build(task.config.model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(150):
        optimizer.zero_grad()
        sums, counts = model.loss(task.batch(step))
        (sums / counts).sum().backward()
        optimizer.step()
    figures = task.evaluate(model).figures
    assert figures["exact"] > 0.9
    assert figures["chrf"] > 90
    assert " -> " in task.sample(model)


def test_validation_file_and_corpus_pairs(tmp_path, reversing, monkeypatch):
    data = DataConfig(source=reversing, validation=reversing, tokenizer="characters")
    task = registry.load(RunConfig(model=MODEL, data=data, train=TRAIN), DataFolders())
    assert any("73 of 73 validation pairs are also training" in n for n in task.notes)
    monkeypatch.setattr("clearformer.data.number_words.chosen", lambda: list(range(100)))
    training, validation, _ = pairs(DataConfig(source="number-words"), DataFolders(), seed=0)
    assert set(training.sources).isdisjoint(validation.sources)
    assert len(training) > 60 > len(validation) > 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "imdb"}, "imdb has no pairs, but a translator learns from them: choose "
                             "multi30k, number-words, or two files as in train.en,train.de"),
        ({"source": "no.tsv"}, "no.tsv: there is no such file"),
    ],
)  # fmt: skip
def test_rejects_sources_without_pairs(changes, message):
    config = RunConfig(model=MODEL, data=DataConfig(**changes), train=TRAIN)
    with pytest.raises(ValueError, match=message):
        registry.load(config, DataFolders())


def test_rejects_data_with_only_too_long_pairs(reversing):
    data = DataConfig(source=reversing, tokenizer="characters")
    config = RunConfig(model=replace(MODEL, length=3), data=data, train=TRAIN)
    with pytest.raises(ValueError, match="has more than 3 tokens on a side: build the model with"):
        registry.load(config, DataFolders())


def test_loads_multi30k(shared_data):
    config = RunConfig(
        model=MODEL,
        data=DataConfig(source="multi30k", tokenizer="bpe", vocabulary=500),
        train=replace(TRAIN, batch_tokens=4096),
    )
    task = registry.load(replace(config, model=replace(MODEL, length=128)), shared_data)
    assert len(task.training) > 28_900
    assert task.batch(0).source.numel() <= 4096
