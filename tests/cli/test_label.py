"""`clearformer label`, and what is common to the new heads of `train --from`."""

import shlex
from pathlib import Path

import pytest

import clearformer as cf
from clearformer.data.tagged_files import read_tagged


def test_label_prints_and_writes_files(tuned, clearformer, tmp_path):
    run = tuned("label")
    found = cf.load(run).label("mary lives")
    lines = clearformer("label", run, "mary lives").out.splitlines()
    assert lines[0].split() == ["mary", found.labels[0], f"{found.probabilities[0]:.3f}"]
    for name in ("a.jsonl", "a.conll"):
        out = tmp_path / name
        assert clearformer("label", run, "mary lives", "john", "--out", str(out)).code == 0
        again = read_tagged(out)
        assert again.words == (("mary", "lives"), ("john",))
        assert again.labels[0] == found.labels
    complaint = clearformer("label", run, "a", "--out", str(tmp_path / "a.csv")).complaint
    assert complaint.endswith("a.csv must end in .jsonl, .json or .conll")


@pytest.mark.parametrize(
    ("head", "words"),
    [("label", "F1  "), ("answer", "exact match  "), ("classify-pairs", "accuracy  ")],
)
def test_evaluates_validation_split_and_given_file(tuned, clearformer, head, words):
    run = tuned(head)
    held_back = clearformer("evaluate", run).out
    assert words in held_back
    assert "held back by the run" in held_back
    data = cf.load(run).run_config.data.source
    assert words in clearformer("evaluate", run, "--data", data).out


@pytest.mark.parametrize("head", ["label", "answer", "classify-pairs"])
def test_commands_of_model_card_work(tuned, clearformer, head):
    run = tuned(head)
    card = Path(run, "README.md").read_text()
    (command,) = [
        line for line in card.splitlines() if line.startswith(f"    clearformer {head[:5]}")
    ]
    assert clearformer(*shlex.split(command)[1:]).code == 0


def test_rejects_other_model(tuned, clearformer):
    run = tuned("answer")
    noun = "a model for extractive question answering: it can answer and embed, not label"
    assert clearformer("label", run, "mary").complaint == f"{run} is {noun}"


def test_new_head_requires_from(clearformer):
    complaint = clearformer("train", "label", "--data", "x.conll").complaint
    assert complaint == "label gives a trained model a new head: add --from RUN"


def test_rejects_other_preset_with_from(clearformer, tuning_folder):
    complaint = clearformer("train", "gpt2", "--from", str(tuning_folder / "bert")).complaint
    assert complaint.endswith(
        "leave out 'gpt2', or use classify, multi-label, regression, classify-pairs, label, "
        "answer or chat"
    )
