"""`clearformer label`, `answer`, and pairs of `train`, `evaluate` and `classify`."""

import json
from dataclasses import replace

import pytest

import clearformer as cf
from clearformer.families import bert
from clearformer.text import train as train_tokenizer

FEW = ("--steps", "2", "--evaluations", "1", "--threads", "1", "--compile", "off", "--quiet")
WORDS = "mary john lives in rome oslo who where ? ."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small BERT, and the files to fine-tune it with."""
    folder = tmp_path_factory.mktemp("verbs")
    tokenizer = train_tokenizer("wordpiece", [WORDS] * 3, 100)
    config = replace(
        bert("tiny"), vocabulary=tokenizer.size, length=24, layers=1, width=16, heads=2, hidden=32
    )
    cf.Model(cf.build(config), config, tokenizer).save(folder / "bert")
    (folder / "names.conll").write_text(
        "\n\n".join(f"mary B-PER\nlives O\nin O\nrome{n} B-LOC" for n in range(20))
    )
    rows = [
        {"question": "who ?", "context": f"mary lives in rome {n}", "answer": "mary"}
        for n in range(20)
    ]
    (folder / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pairs = (f"mary {n},rome,{'yes' if n % 2 else 'no'}" for n in range(20))
    (folder / "pairs.csv").write_text("\n".join(("a,b,c", *pairs)))
    return folder


@pytest.fixture
def tuned(folder, clearformer, monkeypatch):
    """The run of a head, trained when it is first asked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    data = {"label": "names.conll", "answer": "q.jsonl", "classify-pairs": "pairs.csv"}
    columns = ("--text-column", "a", "--second-column", "b", "--label-column", "c")

    def run(head):
        out = folder / head
        if not out.exists():
            more = columns if head == "classify-pairs" else ()
            done = clearformer(
                "train", head, "--from", str(folder / "bert"), "--data", str(folder / data[head]),
                "--out", str(out), *FEW, *more,
            )  # fmt: skip
            assert done.code == 0, done.err
        return str(out)

    return run


def test_label_prints_and_writes_files(tuned, clearformer, tmp_path):
    run = tuned("label")
    found = cf.load(run).label("mary lives")
    lines = clearformer("label", run, "mary lives").out.splitlines()
    assert lines[0].split() == ["mary", found.labels[0], f"{found.probabilities[0]:.3f}"]
    for name in ("a.jsonl", "a.conll"):
        out = tmp_path / name
        assert clearformer("label", run, "mary lives", "john", "--out", str(out)).code == 0
        again = cf.data.tagged_files.read_tagged(out)
        assert again.words == (("mary", "lives"), ("john",))
        assert again.labels[0] == found.labels
    complaint = clearformer("label", run, "a", "--out", str(tmp_path / "a.csv")).complaint
    assert complaint.endswith("a.csv must end in .jsonl, .json or .conll")


def test_answer_prints_and_writes_file(tuned, clearformer, folder, tmp_path):
    run = tuned("answer")
    context = "mary lives in rome"
    found = cf.load(run).answer("who ?", context)
    shown = clearformer("answer", run, "who ?", "--context", context).out
    assert shown == f"{found.text}  ({found.probability:.3f})\n"
    (tmp_path / "text.txt").write_text(context)
    asked = ("answer", run, "who ?", "--context-file", str(tmp_path / "text.txt"))
    assert clearformer(*asked).out == shown
    out = tmp_path / "a.jsonl"
    given = ("answer", run, "--file", str(folder / "q.jsonl"), "--out", str(out))
    assert clearformer(*given).out == f"20 answers: {out}\n"
    assert list(json.loads(out.read_text().splitlines()[0])) == [
        "question",
        "answer",
        "probability",
    ]


def test_classify_pairs_prints_and_writes_file(tuned, clearformer, folder, tmp_path):
    run = tuned("classify-pairs")
    found = cf.load(run).classify(("mary 1", "rome"))
    shown = clearformer("classify", run, "mary 1", "--second", "rome").out
    assert shown.startswith(f"{found.label}  (")
    out = tmp_path / "a.csv"
    done = clearformer("classify", run, "--file", str(folder / "pairs.csv"), "--out", str(out))
    assert done.out == f"20 texts: {out}\n"
    assert out.read_text().splitlines()[0] == "text,second,label,no,yes"


@pytest.mark.parametrize(
    ("head", "words"),
    [("label", "F1  "), ("answer", "exact match  "), ("classify-pairs", "accuracy  ")],
)
def test_evaluates_validation_split_and_given_file(tuned, clearformer, folder, head, words):
    run = tuned(head)
    held_back = clearformer("evaluate", run).out
    assert words in held_back
    assert "held back by the run" in held_back
    data = cf.load(run).run_config.data.source
    assert words in clearformer("evaluate", run, "--data", data).out


def test_model_card_names_the_verb(tuned, folder):
    tuned("label")
    assert (
        'clearformer label label "Mary lives in Paris"' in (folder / "label/README.md").read_text()
    )


@pytest.mark.parametrize(
    ("head", "arguments", "complaint"),
    [
        ("answer", ("answer",), "there is no question: give one, or name a --file of questions"),
        ("answer", ("answer", "who ?"), "give the text to read: either --context or "
         "--context-file"),
        ("answer", ("label", "mary"), "{} is a model for extractive question answering: it can "
         "answer and embed, not label"),
        ("label", ("answer", "who ?", "--context", "x"), "{} is a token classifier: it can label "
         "and embed, not answer"),
        ("classify-pairs", ("classify", "mary"), "a pair is one text and --second, its second "
         "text; a table of pairs is a --file"),
    ],
)  # fmt: skip
def test_rejects_invalid_input(tuned, clearformer, head, arguments, complaint):
    run = tuned(head)
    verb, *rest = arguments
    assert clearformer(verb, run, *rest).complaint == complaint.format(run)


def test_rejects_questions_together_with_file(tuned, clearformer, folder):
    words = ("answer", tuned("answer"), "who ?", "--file", str(folder / "q.jsonl"))
    complaint = "give either --file or questions with a context, and not both"
    assert clearformer(*words).complaint == complaint


def test_new_head_requires_from(clearformer):
    complaint = clearformer("train", "label", "--data", "x.conll").complaint
    assert complaint == "label gives a trained model a new head: add --from RUN"


def test_rejects_other_preset_with_from(clearformer, folder):
    complaint = clearformer("train", "gpt2", "--from", str(folder / "bert")).complaint
    assert complaint.endswith(
        "leave out 'gpt2', or use classify, classify-pairs, label or answer for a new head"
    )
