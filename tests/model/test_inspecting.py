"""Evaluation, traces and metrics of a model."""

import sys

import pytest
import torch

import clearformer as cf


def test_evaluate_matches_command_output(runs, generator, clearformer):
    found = generator.evaluate()
    assert found.metrics["bits_per_byte"] > 0
    printed = clearformer("evaluate", str(runs / "generator")).out.splitlines()
    assert printed[-len(found.lines()) :] == found.lines()
    assert str(found).splitlines()[-1] == printed[-1]
    (runs / "other.txt").write_text("something else entirely\n" * 20)
    assert generator.evaluate(runs / "other.txt").metrics != found.metrics
    before = {name: p.clone() for name, p in generator.module.named_parameters()}
    beside = generator.evaluate(weights="int8")
    assert beside.in_float32.metrics == found.metrics
    for name, parameter in generator.module.named_parameters():
        assert torch.equal(parameter, before[name])
    trained = generator.evaluate(part="train")
    assert "these figures are of the data that the run was trained on" in trained.notes
    with pytest.raises(ValueError, match="`part` is test, but"):
        generator.evaluate(part="test")


def test_trace_and_metrics(runs, generator):
    trace = generator.trace("12 b")
    weights = trace.weights(layer=0, head=1)
    assert weights.shape == (4, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4))
    torch.testing.assert_close(cf.trace(generator, "12 b").logits, trace.logits)
    assert repr(trace) == "<Trace of modern-tiny: 4 tokens, 1 layers>"
    with pytest.raises(ValueError, match=r"text is \[1.5\]|text\[0\] is 1.5"):
        generator.trace([1.5])
    rows = generator.metrics()
    assert [row["step"] for row in rows if row["event"] == "step"] == [1, 2, 3, 4, 5, 6]
    pandas = pytest.importorskip("pandas", reason="frames need pandas")
    assert isinstance(rows.frame(), pandas.DataFrame)


def test_metrics_need_a_run(generator, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"copy has no metrics\.jsonl: load the folder"):
        cf.load(generator.save(tmp_path / "copy")).metrics()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match="needs pandas: pip install pandas"):
        generator.metrics().frame()
