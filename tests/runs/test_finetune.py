"""Fine-tuning: which weights are taken over, which are new, and what is rejected."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clearformer.builder import build
from clearformer.config import (
    Causal,
    Classifier,
    DataConfig,
    Masking,
    Muon,
    Origin,
    RunConfig,
    Sinusoidal,
    TrainConfig,
    run_from_json,
    to_json,
)
from clearformer.data import DataFolders
from clearformer.families import bert, gpt2
from clearformer.runs import checkpoint, finetune, metrics
from clearformer.runs.load import open_run
from clearformer.runs.run import Run

SMALL = {"length": 24, "layers": 1, "width": 16, "heads": 2, "hidden": 32}
TRAIN = TrainConfig(learning_rate=1e-2, batch_size=8, steps=4, evaluations=2, threads=1)


def finished(config, folder):
    run = Run(config, folder, DataFolders(cache=folder.parent / "cache"))
    list(run.events())
    return folder


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A table, a text, a BERT and a GPT-2, both trained a little."""
    room = tmp_path_factory.mktemp("origin")
    rows = [
        f"a {word} film number {i},{label}\n"
        for i in range(40)
        for word, label in (("lovely", "good"), ("dull", "bad"))
    ]
    (room / "reviews.csv").write_text("text,label\n" + "".join(rows))
    (room / "text.txt").write_text("some films are lovely. others are dull.\n" * 80)
    data = DataConfig(source=str(room / "text.txt"), tokenizer="wordpiece", vocabulary=80)
    for size in ("tiny", "tiny-masked"):
        config = RunConfig(
            model=replace(bert(size), **SMALL), data=replace(data, masking=Masking()), train=TRAIN
        )
        finished(config, room / size)
    config = RunConfig(
        model=replace(gpt2(), **SMALL),
        data=replace(data, tokenizer="bpe", vocabulary=300),
        train=TRAIN,
    )
    finished(config, room / "gpt2")
    return room


def config_from(folder, **changes):
    """A run that fine-tunes the model in `folder`, with some settings changed."""
    found = finetune.read_origin(folder)
    data = replace(found.config.data, vocabulary=found.tokenizer.size)
    config = replace(found.config, data=data, train=TRAIN, origin=found.origin)
    model = replace(config.model, **{k: v for k, v in changes.items() if k in vars(config.model)})
    rest = {k: v for k, v in changes.items() if k not in vars(config.model)}
    return replace(config, model=model, **rest)


def classifier_from(folder, pool="pooler", **changes):
    config = config_from(folder, head=Classifier(pool=pool), **changes)
    source = str(folder.parent / "reviews.csv")
    return replace(config, data=replace(config.data, source=source))


def begin(config, folder, **more):
    return Run(config, folder, DataFolders(cache=folder.parent / "cache"), **more)


def test_classifier_takes_body_and_pooler(room, tmp_path):
    run = begin(classifier_from(room / "tiny"), tmp_path / "run")
    old = dict(open_run(room / "tiny").model.named_parameters())
    new = dict(run.model.named_parameters())
    for name, value in new.items():
        if name.startswith("head.project"):
            continue
        before = name.replace("head.pool.", "head.sentence.pool.")
        assert value.equal(old[before]), name
    assert new["head.pool.transform.weight"].shape == (16, 16)
    assert run.config.model.head.names == ("bad", "good")
    assert run.task.tokenizer.to_json() == open_run(room / "tiny").tokenizer.to_json()


@pytest.mark.parametrize(("kind", "pool"), [("tiny-masked", "first"), ("gpt2", "mean")])
def test_classifier_from_other_models_and_pools(room, tmp_path, kind, pool):
    run = begin(classifier_from(room / kind, pool), tmp_path / "run")
    old = dict(open_run(room / kind).model.named_parameters())
    for name, value in run.model.named_parameters():
        assert name.startswith("head.") or value.equal(old[name]), name
    list(run.events())


def test_generator_continues_from_checkpoint(room, tmp_path):
    run = begin(config_from(room / "gpt2" / "checkpoints" / "step-4"), tmp_path / "run")
    old = dict(open_run(room / "gpt2" / "checkpoints" / "step-4").model.named_parameters())
    for name, value in run.model.named_parameters():
        assert value.equal(old[name]), name
    assert run.state.step == 0


def test_shorter_length_takes_first_positions(room, tmp_path):
    run = begin(classifier_from(room / "tiny", length=10), tmp_path / "run")
    old = open_run(room / "tiny").model.embedding.position.table.weight
    assert run.model.embedding.position.table.weight.equal(old[:10])


def test_classifier_keeps_head_unless_classes_differ(room, tmp_path):
    finished(classifier_from(room / "tiny"), tmp_path / "first")
    again = config_from(tmp_path / "first")
    source = str(room / "reviews.csv")
    again = replace(again, data=replace(again.data, source=source))
    old = dict(open_run(tmp_path / "first").model.named_parameters())
    new = dict(begin(again, tmp_path / "again").model.named_parameters())
    assert new["head.project.weight"].equal(old["head.project.weight"])
    other = tmp_path / "other.csv"
    other.write_text((room / "reviews.csv").read_text().replace(",good", ",fine"))
    elsewhere = replace(again, data=replace(again.data, source=str(other)))
    new = dict(begin(elsewhere, tmp_path / "elsewhere").model.named_parameters())
    assert not new["head.project.weight"].equal(old["head.project.weight"])


@pytest.mark.parametrize("optimizer", [TRAIN.optimizer, Muon()])
def test_frozen_body_is_unchanged_and_head_trains(room, tmp_path, optimizer):
    train = replace(TRAIN, freeze="body", optimizer=optimizer, ema_decay=0.5)
    config = classifier_from(room / "tiny", train=train)
    finished(config, tmp_path / "run")
    old = dict(open_run(room / "tiny").model.named_parameters())
    newest = checkpoint.newest(tmp_path / "run/checkpoints", print)
    for name, value in newest.tensors("model.safetensors").items():
        before = old.get(name.replace("head.pool.", "head.sentence.pool."))
        assert name.startswith("head.") != (before is not None and value.equal(before)), name
    slots = newest.tensors("optimizer.safetensors")
    assert slots
    assert all(name.startswith("head.") for name in slots)


def test_rejects_freezing_all_parameters(room, tmp_path):
    config = config_from(room / "gpt2", train=replace(TRAIN, freeze="body"))
    with pytest.raises(
        ValueError, match="the head has no weights of its own, so that nothing would"
    ):
        begin(config, tmp_path / "run")


@pytest.mark.parametrize("size", ["tiny", "tiny-masked"])
def test_rescaled_embeddings_keep_outputs(room, tmp_path, size):
    plain = begin(classifier_from(room / size, pool="first"), tmp_path / "plain").model.eval()
    train = replace(TRAIN, embedding_std=0.02)
    scaled = begin(classifier_from(room / size, pool="first", train=train), tmp_path / "scaled")
    table = scaled.model.embedding.token.weight
    assert table.std().item() == pytest.approx(0.02, rel=1e-5)
    assert not table.allclose(plain.embedding.token.weight, rtol=0.2)
    tokens = torch.randint(5, 50, (3, 9))
    found, expected = (each.hidden(tokens) for each in (scaled.model.eval(), plain))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_rejects_rescaling_that_would_change_outputs(room, tmp_path):
    train = replace(TRAIN, embedding_std=0.02)
    generator = config_from(room / "gpt2", train=train)
    with pytest.raises(ValueError, match="but no norm follows the embedding of this model"):
        begin(generator, tmp_path / "gpt2")
    again = config_from(room / "tiny-masked", train=train)
    with pytest.raises(ValueError, match="but the head shares the token embedding, so that"):
        begin(again, tmp_path / "masked")
    with pytest.raises(ValueError, match="needs a pretrained embedding: add --from RUN"):
        begin(replace(generator, origin=None), tmp_path / "none")


def test_rejects_rescaling_with_fixed_positions(small):
    model = build(replace(small("bert"), position=Sinusoidal(), head=Classifier(classes=2)))
    with pytest.raises(
        ValueError, match="fixed position encodings are added to the token embedding"
    ):
        finetune.rescale_embeddings(model, 0.02)


@pytest.mark.parametrize("freeze", [None, "body"])
def test_resume_does_not_need_origin(room, tmp_path, freeze):
    source = tmp_path / "source"
    shutil.copytree(room / "tiny", source)
    config = classifier_from(source, train=replace(TRAIN, steps=8, freeze=freeze))
    table = str(room / "reviews.csv")
    config = replace(config, data=replace(config.data, source=table))
    finished(config, tmp_path / "whole")
    run = begin(config, tmp_path / "part")
    list(run.events(lambda: run.state.step >= 3))
    shutil.rmtree(source)
    torch.rand(3)
    list(begin(config, tmp_path / "part", resume=True).events())

    def outcome(folder):
        curve = [
            {k: v for k, v in record.items() if k not in {"seconds", "progress"}}
            for record in metrics.read(folder / "metrics.jsonl")
        ]
        newest = checkpoint.newest(folder / "checkpoints", print)
        return curve, newest.tensors("model.safetensors"), newest.json("config.json")

    (one, first, saved), (other, second, _) = (
        outcome(tmp_path / "whole"),
        outcome(tmp_path / "part"),
    )
    assert one == other
    assert all(value.equal(second[name]) for name, value in first.items())
    assert saved["origin"] == {"kind": "Origin", **vars(config.origin)}
    assert run_from_json(saved).origin == config.origin


def test_rejects_resume_with_other_origin(room, tmp_path):
    config = classifier_from(room / "tiny")
    finished(config, tmp_path / "run")
    for other in (None, Origin(folder="x", sha256="0" * 64)):
        with pytest.raises(ValueError, match=r"cannot continue with other settings: origin \("):
            begin(replace(config, origin=other), tmp_path / "run", resume=True)


def test_rejects_changed_origin(room, tmp_path):
    config = classifier_from(room / "tiny")
    config = replace(config, origin=replace(config.origin, sha256="0" * 64))
    with pytest.raises(ValueError, match="has changed since this run was set up"):
        begin(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": 2}, "model.layers is 2, but {} has 1: with --from only the head, dropout and"),
        ({"heads": 4}, "model.heads is 4, but {} has 2: with --from"),
        ({"patterns": (Causal(),)}, "model.patterns is (Causal(),), but"),
        ({"length": 25}, "model.length is 25, but {} has learned 24 positions: choose at most"),
    ],
)
def test_rejects_body_that_does_not_fit(room, tmp_path, changes, words):
    config = classifier_from(room / "tiny", **changes)
    with pytest.raises(ValueError, match=re.escape(words.format(room / "tiny"))):
        begin(config, tmp_path / "run")


def test_rejects_other_tokenizer(room, tmp_path):
    config = classifier_from(room / "tiny")
    for change in ({"tokenizer": "bytes"}, {"vocabulary": 33}):
        other = replace(config, data=replace(config.data, **change))
        with pytest.raises(ValueError, match=r"comes with its tokenizer, wordpiece with \d+ tok"):
            begin(other, tmp_path / "run")


@pytest.mark.parametrize("pool", ["first", "pooler"])
def test_rejects_first_token_pool_for_causal_model(room, tmp_path, pool):
    with pytest.raises(
        ValueError, match=r"the first token of .* attends to no other .*: choose mean or max"
    ):
        begin(classifier_from(room / "gpt2", pool), tmp_path / "run")


def test_rejects_weights_that_do_not_match_config(room):
    opened = open_run(room / "tiny")
    config = replace(opened.config.model, hidden=40)
    from clearformer.builder import build

    with pytest.raises(
        ValueError, match=r"feed_forward.up.weight is \(32, 16\) there, but \(40, 16\)"
    ):
        finetune.load_pretrained(build(config), config, opened)


def test_finetune_config_round_trips_through_json(room):
    config = classifier_from(room / "tiny", train=replace(TRAIN, freeze="body"))
    assert run_from_json(to_json(config)) == config
    assert Path(config.origin.folder) == room / "tiny"
