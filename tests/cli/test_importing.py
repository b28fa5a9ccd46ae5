"""`clearformer import`: from a folder of another tool to a run."""

import json
import shlex

import pytest

from clearformer.builder import build
from clearformer.config import (
    AnswerSpan,
    Classifier,
    Features,
    GenerationDefaults,
    MaskedToken,
    MultipleChoice,
    NextSentence,
    TokenClassifier,
)
from clearformer.hub.exporting import to_huggingface
from clearformer.runs.start import finetune_config
from clearformer.text import Bytes, WordPieces


@pytest.fixture
def folder(small, scrambled, tmp_path):
    """A checkpoint in Hugging Face's form."""

    def write(family="gpt2", **changes):
        config = small(family, vocabulary=256, **changes)
        model = scrambled(build(config)).eval()
        to_huggingface(model, config, GenerationDefaults(), Bytes(), tmp_path / "theirs")
        return tmp_path / "theirs"

    return write


def test_import_then_generate(clearformer, folder, tmp_path):
    done = clearformer("import", str(folder()), "--out", str(tmp_path / "run"))
    assert done.code == 0, done.err
    first, last = done.out.splitlines()[0], done.out.splitlines()[-1]
    assert first.startswith("gpt2-theirs: ")
    assert "2 layers, width 16, 4 heads, length 12; bytes of 256; head NextToken" in first
    assert last == f'next: clearformer generate {tmp_path / "run"} "Once upon"'
    spoken = clearformer("generate", str(tmp_path / "run"), "Once", "--max-tokens", "20")
    assert spoken.code == 0
    assert spoken.out.startswith("Once")
    assert clearformer("describe", str(tmp_path / "run")).code == 0


def test_run_is_named_after_folder(clearformer, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert clearformer("import", str(folder())).code == 0
    assert (tmp_path / "runs/theirs/checkpoints/step-0/model.safetensors").exists()
    again = clearformer("import", str(tmp_path / "theirs"))
    assert again.complaint == "runs/theirs already exists: choose another folder"


def test_encoder_without_mask_token_suggests_embed(clearformer, folder, tmp_path):
    done = clearformer("import", str(folder("bert")), "--out", str(tmp_path / "run"))
    assert "head Pretraining" in done.out
    assert "next: clearformer embed" in done.out
    wrong = clearformer("generate", str(tmp_path / "run"), "x").complaint
    assert "is a masked model: it can fill and embed, not generate" in wrong


VERBS = {
    "fill": MaskedToken(),
    "classify": Classifier(classes=2, pool="pooler", names=("bad", "good")),
    "embed": Features(pool="pooler"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_suggested_command_works(clearformer, small, scrambled, prose, tmp_path, verb):
    """The suggested command is run exactly as printed."""
    pieces = WordPieces.train([prose], 300)
    config = small("bert", vocabulary=pieces.size, head=VERBS[verb])
    model = scrambled(build(config)).eval()
    to_huggingface(model, config, GenerationDefaults(), pieces, tmp_path / "theirs")
    done = clearformer("import", str(tmp_path / "theirs"), "--out", str(tmp_path / "run"))
    hint = done.out.splitlines()[-1].removeprefix("next: clearformer ")
    assert hint.startswith(f"{verb} {tmp_path / 'run'} ")
    assert clearformer(*shlex.split(hint)).code == 0


@pytest.mark.parametrize(
    ("head", "verb"),
    [(TokenClassifier(classes=2, names=("O", "X")), "label"), (AnswerSpan(), "answer")],
)
def test_hint_for_label_and_answer_heads_works(clearformer, folder, tmp_path, head, verb):
    run = str(tmp_path / "run")
    done = clearformer("import", str(folder("bert", head=head)), "--out", run)
    _, _, hint = done.out.partition("next: clearformer ")
    assert hint.startswith(verb)
    assert clearformer(*shlex.split(hint)).code == 0
    complaint = clearformer("evaluate", run).complaint
    assert complaint == f"{head.noun} learns from a file of yours: give it as --data"


UNTRAINED = [NextSentence(), MultipleChoice()]


@pytest.mark.parametrize("head", UNTRAINED, ids=lambda head: type(head).__name__)
def test_head_without_verb_suggests_embed(clearformer, folder, tmp_path, head):
    run = str(tmp_path / "run")
    done = clearformer("import", str(folder("bert", head=head)), "--out", run)
    assert f"head {type(head).__name__}" in done.out
    assert f"next: clearformer embed {run}" in done.out
    assert clearformer("embed", run, "A text", "Another").code == 0
    assert clearformer("describe", run).code == 0
    for verb in ("generate", "classify", "fill"):
        sentence = f"{run} is {head.noun}: it can embed, not {verb}"
        assert sentence in clearformer(verb, run, "x").complaint
    complaint = clearformer("evaluate", run).complaint
    assert f"is {head.noun}, which has nothing to evaluate here" in complaint
    data = tmp_path / "data.txt"
    data.write_text("some text\n" * 50)
    again = clearformer("train", "--from", run, "--data", str(data), "--out", str(tmp_path / "x"))
    assert f"is {head.noun}, which is not trained here" in again.complaint


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda path: (path / "config.json").unlink(), "has no config.json"),
        (lambda path: (path / "model.safetensors").unlink(), "has no weights"),
        (
            lambda path: (path / "model.safetensors").write_bytes(b"\x80\x04"),
            "not a valid safe",
        ),
        (lambda path: (path / "config.json").write_text('{"model_type": "t5"}'), "'t5'"),
        (lambda path: (path / "tokenizer.json").unlink(), "has no tokenizer"),
        (lambda path: (path / "tokenizer.json").write_text("{}"), "tokenizer.json"),
    ],
)
def test_errors_are_one_line_and_leave_no_files(clearformer, folder, tmp_path, change, sentence):
    path = folder()
    change(path)
    out = tmp_path / "runs/x"
    assert sentence in clearformer("import", str(path), "--out", str(out)).complaint
    assert not out.exists()
    assert not out.parent.exists() or list(out.parent.iterdir()) == []


def test_ignored_settings_are_reported_and_unsupported_rejected(clearformer, folder, tmp_path):
    path = folder()
    settings = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**settings, "shiny": 2}))
    done = clearformer("import", str(path), "--out", str(tmp_path / "x"))
    assert "note: ignored, a setting that this kind of model does not have: shiny" in done.out
    (path / "config.json").write_text(json.dumps({**settings, "scale_attn_weights": False}))
    complaint = clearformer("import", str(path), "--out", str(tmp_path / "y")).complaint
    assert "scale_attn_weights is False, but clearformer computes True" in complaint


def test_rejects_missing_path(clearformer):
    assert "there is no folder or file /no/such" in clearformer("import", "/no/such").complaint


@pytest.mark.parametrize(
    ("family", "head", "pool"),
    [
        ("bert", NextSentence(), "pooler"),
        ("bert", MultipleChoice(), "pooler"),
        ("bert", TokenClassifier(), "first"),
        ("gpt2", TokenClassifier(), "mean"),  # its first token sees no other
    ],
)
def test_classifier_head_for_imported_model(clearformer, folder, tmp_path, family, head, pool):
    run = tmp_path / "run"
    assert clearformer("import", str(folder(family, head=head)), "--out", str(run)).code == 0
    found = finetune_config(run, "classify").model.head
    assert found == Classifier(pool=pool)
