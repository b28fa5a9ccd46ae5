"""A classifier with scores of n-grams, from a table to predictions."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import clearformer as cf
from clearformer.config import Ngrams, Uniform
from clearformer.core.model import Batch
from clearformer.data import DataFolders
from clearformer.tasks import registry
from clearformer.training.events import Ended, Step

TINY = {"steps": 30, "learning_rate": 0.02, "batch_size": 16, "evaluations": 2, "length": 16,
        "width": 16, "hidden": 32, "threads": 1, "compile": "off", "quiet": True,
        "precision": "float32", "ngrams.buckets": 4096, "validation_fraction": 0.25}  # fmt: skip
ENDINGS = {"good": "fine", "bad": "poor", "odd": "strange"}


def rows(count=120):
    """Reviews whose class is decided by a pair of words, not by a word; half are of one class."""
    found = []
    for i in range(count):
        label = ("good", "bad", "good", "odd")[i % 4]
        words = ["film", f"number{i % 7}", "not" if i % 3 else "very", ENDINGS[label], str(i)]
        found.append((" ".join(words), label))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ngrams") / "run"
    cf.train("classifier-ngrams", data=rows(), out=folder, **TINY)
    return folder


@pytest.fixture(scope="module")
def model(run):
    return cf.load(run)


def test_it_learns_and_describes_itself(model):
    assert model.evaluate().metrics["accuracy"] > 0.9
    found = model.classify(["film very poor", "film not fine"])
    assert [each.label for each in found] == ["bad", "good"]
    assert model.config.ngrams == Ngrams(buckets=4096)
    assert model.module.ngrams.evidence.count_nonzero() > 10


def test_evidence_is_counted_in_the_training_texts_alone(run, model):
    task = registry.load(model.run_config, DataFolders(), model.tokenizer)
    texts, labels = task.batches.rows, task.batches.rows.labels
    assert 0 < len(task.validation) < len(texts) == len(labels)
    scores = model.module.ngrams
    inside = torch.zeros(4096, 3, dtype=torch.float64)
    every = torch.zeros(4096, 1, dtype=torch.float64)
    for row in range(len(texts)):
        ids = torch.from_numpy(texts.flat[texts.starts[row] : texts.starts[row + 1]]).long()[None]
        for place in set(scores.places(ids).flatten().tolist()) - {-1}:
            inside[place, labels[row]] += 1
            every[place] += 1
    expected = model.config.ngrams.evidence.of(inside.numpy(), (every - inside).numpy())
    torch.testing.assert_close(scores.evidence.double(), torch.from_numpy(expected))


def test_logits_and_loss_are_those_of_head_and_scores(model):
    module = model.module
    tokens = torch.randint(2, 20, (4, 9))
    mask = torch.arange(9) < torch.tensor([[9], [3], [5], [1]])
    with torch.no_grad():
        head = module.head(module.hidden(tokens, mask), mask)
        together = 0.1 * head + module.ngrams(tokens, mask)
        torch.testing.assert_close(module(tokens, mask), together)
        targets = torch.tensor([0, 1, 2, -100])
        total, count = module.loss(Batch(tokens, targets, mask))
    assert count == 3
    parts = (head, module.ngrams(tokens, mask))
    first, second = (F.cross_entropy(each, targets, reduction="sum") for each in parts)
    torch.testing.assert_close(total[0], (first + second) / 2)
    assert not module.ngrams(tokens, mask).allclose(torch.zeros(4, 3), atol=0.01)
    assert not module.head._forward_hooks, "nothing is left behind"


def test_gradients_reach_the_weights_and_not_the_evidence(model):
    module = cf.build(model.config)
    module.ngrams.evidence.fill_(1.0)
    tokens = torch.tensor([[3, 4, 5]])
    module.loss(Batch(tokens, torch.tensor([1])))[0].sum().backward()
    assert module.ngrams.evidence.grad is None
    touched = module.ngrams.weight.grad.abs().sum(1).nonzero()[:, 0].tolist()
    assert sorted(touched) == sorted(set(module.ngrams.rows(tokens)[0].tolist()) - {-1})


def test_a_stopped_run_goes_on_bit_for_bit(run, tmp_path):
    training = cf.Training("classifier-ngrams", data=rows(), out=tmp_path / "run", **TINY)
    for event in training:
        if isinstance(event, Step) and event.step == 12:
            training.stop()
    assert event == Ended(12, "stopped", 130)
    cf.train(out=tmp_path / "run", resume=True, quiet=True)
    again, whole = (
        cf.load(folder / "checkpoints" / "step-30").module.state_dict()
        for folder in (tmp_path / "run", run)
    )
    for name, value in again.items():
        assert torch.equal(value, whole[name]), name


def test_saved_and_exported_models_are_the_same(model, tmp_path):
    model.save(tmp_path / "saved")
    model.export(tmp_path / "one.safetensors", to="safetensors")
    texts = [text for text, _ in rows(8)]
    wanted = [each.probabilities for each in model.classify(texts)]
    for path in (tmp_path / "saved", tmp_path / "one.safetensors"):
        assert [each.probabilities for each in cf.load(path).classify(texts)] == wanted
    with pytest.raises(ValueError, match="use --to safetensors, which keeps any model"):
        model.export(tmp_path / "hf")


def test_fine_tuning_keeps_what_was_counted_unless_the_classes_change(run, model, tmp_path):
    more = {**{k: TINY[k] for k in ("batch_size", "threads", "compile", "quiet")}, "steps": 1}
    kept = cf.train(from_=run, data=rows(40), out=tmp_path / "kept", **more).module.ngrams
    assert torch.equal(kept.evidence, model.module.ngrams.evidence)
    two = [(text, label) for text, label in rows(80) if label != "odd"]
    other = cf.train("classify", from_=run, data=two, out=tmp_path / "two", **more).module.ngrams
    assert other.evidence.shape == (4096, 2)
    assert other.evidence.any()


def test_several_labels_a_text(tmp_path):
    table = [(text, [label, "first"] if place < 30 else [label]) for place, (text, label) in
             enumerate(rows(60))]  # fmt: skip
    found = cf.train(
        "classifier-ngrams", data=table, task="multi-label", out=tmp_path / "run", **TINY
    )
    assert found.config.head.names == ("bad", "first", "good", "odd")
    assert found.module.ngrams.evidence.count_nonzero(dim=0).all()


def test_without_naive_bayes_and_with_longer_ngrams(model):
    plain = replace(model.config, ngrams=Ngrams(buckets=64, longest=3, evidence=Uniform()))
    module = cf.build(plain)
    assert module.ngrams.places(torch.tensor([[3, 4, 5]])).shape == (1, 3, 3)
    config = replace(model.run_config, model=plain)
    task = registry.load(config, DataFolders(), model.tokenizer)
    task.prepare(module)
    assert (module.ngrams.evidence == 1).all()


def test_only_a_model_that_classifies_has_ngrams(model):
    with pytest.raises(ValueError, match=r"ngrams is .*absent in a model that does not classify"):
        cf.Training("classifier-ngrams", data=[("a b", 1.5), ("b c", 2.0)], task="regression")
