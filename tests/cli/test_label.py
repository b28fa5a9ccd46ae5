"""`clearformer label`, and what is common to the new heads of `train --from`."""

import pytest

import clearformer as cf
from clearformer.data.tagged_files import read_tagged


def test_labels_in_the_terminal_and_in_files(tuned, clearformer, tmp_path):
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
def test_figures_of_what_was_held_back_and_of_a_file(tuned, clearformer, head, words):
    run = tuned(head)
    held_back = clearformer("evaluate", run).out
    assert words in held_back
    assert "held back by the run" in held_back
    data = cf.load(run).run_config.data.source
    assert words in clearformer("evaluate", run, "--data", data).out


def test_a_card_names_the_verb(tuned, tuning_folder):
    tuned("label")
    assert (
        'clearformer label label "Mary lives in Paris"'
        in (tuning_folder / "label/README.md").read_text()
    )


def test_another_model_is_refused(tuned, clearformer):
    run = tuned("answer")
    noun = "a model for extractive question answering: it can answer and embed, not label"
    assert clearformer("label", run, "mary").complaint == f"{run} is {noun}"


def test_a_new_head_needs_a_body(clearformer):
    complaint = clearformer("train", "label", "--data", "x.conll").complaint
    assert complaint == "label gives a trained model a new head: add --from RUN"


def test_another_preset_beside_a_body(clearformer, tuning_folder):
    complaint = clearformer("train", "gpt2", "--from", str(tuning_folder / "bert")).complaint
    assert complaint.endswith(
        "leave out 'gpt2', or use classify, classify-pairs, label, answer or chat"
    )
