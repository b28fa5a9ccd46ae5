"""`clearformer answer`: questions, contexts and files."""

import json

import pytest

import clearformer as cf


def test_answer_prints_and_writes_file(tuned, clearformer, tuning_folder, tmp_path):
    run = tuned("answer")
    context = "mary lives in rome"
    found = cf.load(run).answer("who ?", context)
    shown = clearformer("answer", run, "who ?", "--context", context).out
    assert shown == f"{found.text}  ({found.probability:.3f})\n"
    (tmp_path / "text.txt").write_text(context)
    asked = ("answer", run, "who ?", "--context-file", str(tmp_path / "text.txt"))
    assert clearformer(*asked).out == shown
    out = tmp_path / "a.jsonl"
    given = ("answer", run, "--file", str(tuning_folder / "q.jsonl"), "--out", str(out))
    assert clearformer(*given).out == f"20 answers: {out}\n"
    assert list(json.loads(out.read_text().splitlines()[0])) == [
        "question",
        "answer",
        "probability",
    ]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "there is no question: give one, or name a --file of questions"),
        (("who ?",), "give the text to read: either --context or --context-file"),
        (
            ("who ?", "--context", "x", "--context-file", "y"),
            "give the text to read: either --context or --context-file",
        ),
    ],
)
def test_rejects_invalid_input(tuned, clearformer, words, complaint):
    assert clearformer("answer", tuned("answer"), *words).complaint == complaint


def test_rejects_other_model(tuned, clearformer):
    run = tuned("label")
    complaint = clearformer("answer", run, "who ?", "--context", "x").complaint
    assert complaint == f"{run} is a token classifier: it can label and embed, not answer"


def test_rejects_questions_together_with_file(tuned, clearformer, tuning_folder):
    words = ("answer", tuned("answer"), "who ?", "--file", str(tuning_folder / "q.jsonl"))
    complaint = "give either --file or questions with a context, and not both"
    assert clearformer(*words).complaint == complaint
