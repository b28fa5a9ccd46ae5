"""evaluate() on any model: the report of its task."""

import math
from dataclasses import replace

import pytest

from clearformer.builder import build
from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.data import DataFolders
from clearformer.families import classifier, generator, original
from clearformer.tasks import registry
from clearformer.tasks.evaluate import evaluate
from clearformer.tasks.task import EvaluationOptions

TRAIN = TrainConfig(learning_rate=1e-2, batch_size=4, steps=5)
SMALL = {"length": 16, "layers": 1, "width": 16, "heads": 2, "hidden": 32}


def evaluated(config, places, **options):
    task = registry.load(config, places)
    model = build(task.config.model)
    found = evaluate(model, task.config, task.tokenizer, places, EvaluationOptions(**options))
    return found, task, model


def test_evaluate_generator_reports_bits_per_byte(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {i} of the text\n" for i in range(300)))
    model = replace(generator(), **SMALL)
    config = RunConfig(model=model, data=DataConfig(source=str(path)), train=TRAIN)
    found, task, model = evaluated(config, DataFolders(cache=tmp_path), stride=16)
    bits = task.evaluate(model).figures["bits_per_byte"]
    assert found.metrics["bits_per_byte"] == pytest.approx(bits, rel=1e-6)
    assert found.metrics["perplexity"] == pytest.approx(math.exp(found.metrics["loss"]))
    lines = found.lines(in_float32=found)
    assert lines[1] == "quantizing costs    +0.0000 bits per byte"
    assert "; held back by the run, of " in lines[-1]


def test_evaluate_classifier_reports_accuracy(tmp_path):
    path = tmp_path / "a.csv"
    rows = [f"good {i} film,yes\nbad {i} film,no\n" for i in range(40)]
    path.write_text("text,label\n" + "".join(rows))
    data = DataConfig(source=str(path), tokenizer="words", vocabulary=50, validation_fraction=0.2)
    config = RunConfig(model=replace(classifier(), **SMALL), data=data, train=TRAIN)
    found, task, model = evaluated(config, DataFolders(cache=tmp_path))
    assert found.metrics == task.evaluate(model).figures
    assert found.total == 16
    assert f"accuracy     {found.accuracy:.4f} on 16 texts" in "\n".join(found.lines())
    whole, _, _ = evaluated(config, DataFolders(cache=tmp_path), part="train")
    assert whole.total == 64
    assert "training part of " in whole.protocol


def test_evaluate_translator_reports_bleu_and_chrf(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{a}{b}\t{b}{a}\n" for a in "abcdefgh" for b in "abcdefgh"))
    model = replace(original("tiny"), decoder_layers=1, **SMALL)
    data = DataConfig(source=str(path), tokenizer="characters")
    config = RunConfig(model=model, data=data, train=TRAIN)
    found, task, model = evaluated(config, DataFolders(cache=tmp_path), beam=1)
    assert found.metrics["loss"] == pytest.approx(task.evaluate(model).figures["loss"])
    assert len(found.texts) == len(found.pairs) == len(task.validation)
    assert "beam 1, length penalty 1, held back by the run" in found.protocol
