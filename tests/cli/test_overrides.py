"""Flags by the end of their path, and values of another class."""

import re

import pytest

from clearformer.cli.overrides import expand, without
from clearformer.cli.train import parse
from clearformer.config import AdamW, Cosine, Grid, Muon, Rotary


@pytest.fixture(scope="module")
def default():
    return parse([])


@pytest.mark.parametrize(
    ("flag", "path"),
    [
        ("--minutes", "--train.minutes"),
        ("--lr=3", "--train.learning-rate=3"),
        ("--learning-rate=3", "--train.learning-rate=3"),
        ("--learning_rate", "--train.learning-rate"),
        ("--batch-size", "--train.batch-size"),
        ("--data", "--data.source"),
        ("--width", "--model.width"),
        ("--length", "--model.length"),  # the past's length has the longer path
        ("--dropout.embedding", "--model.dropout.embedding"),
        ("--dropout.embedding=0.1", "--model.dropout.embedding=0.1"),
        ("--adam.beta2", "--train.optimizer.adam.beta2"),
        ("--optimizer", "--train.optimizer"),
        ("--save_seconds", "--train.save-seconds"),
        ("--model.dropout.embedding", "--model.dropout.embedding"),
        ("--resume", "--resume"),
        ("--attention", "--attention"),  # of the dropout or of the biases?
        ("words", "words"),
    ],
)
def test_short_flag_expands_to_path(default, flag, path):
    assert expand(flag, default) == path


def test_partial_path_sets_field():
    assert parse(["--dropout.embedding", "0.1"]).model.dropout.embedding == 0.1


def test_selects_class_by_name():
    read = parse(["--optimizer", "adamw", "--lr=1e-3", "--beta2", "0.9", "--schedule=cosine"])
    assert read.train.optimizer == AdamW(beta2=0.9)
    assert read.train.schedule == Cosine()
    assert parse(["gpt2-small", "--position", "rotary"]).model.position == Rotary()
    read = parse(
        ["gpt2-small", "--optimizer", "Muon", "--lr", "0.02", "--adam-learning-rate", "1e-4"]
    )
    assert read.train.optimizer == Muon(adam_learning_rate=1e-4)
    assert parse(["--query-key-norm", "none"]).model.query_key_norm is None
    grid = parse(["--position", "grid", "--columns", "8"])
    assert grid.model.position == Grid(columns=8)


def test_same_class_keeps_its_settings():
    before = parse([]).train.schedule
    assert parse(["--schedule", "stable-then-decay"]).train.schedule == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--optimizer", "adam"], "--train.optimizer is 'adam': did you mean 'AdamW'?"),
        (["--optimizer", "sgd"], "--train.optimizer is 'sgd': known: AdamW, Muon"),
        (["--optimizer", "adamw"], "another optimizer needs another learning rate: add --lr"),
        (["--position", "grid"], "a Grid needs columns: add --model.position.columns"),
    ],
)
def test_rejects_unknown_choices(words, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        parse(words)


def test_none_is_case_insensitive():
    assert parse(["--gradient-clip", "none"]).train.gradient_clip is None
    assert parse(["--train.gradient-clip", "None"]).train.gradient_clip is None
    assert parse(["--data", "none"]).data.source == "none"  # a file may be called so


def test_without_removes_flag():
    assert without(["a", "--x", "b", "--x=c", "d"], "--x") == ["a", "d"]
