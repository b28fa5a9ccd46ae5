"""`clearformer import`, from the folder of another tool to text of its model."""

import json

import pytest

from clearformer.build import build
from clearformer.hub.exporting import to_huggingface
from clearformer.text import Bytes


@pytest.fixture
def folder(small, scrambled, tmp_path):
    """A checkpoint in Hugging Face's form."""

    def write(family="gpt2", **changes):
        config = small(family, vocabulary=256, **changes)
        model = scrambled(build(config)).eval()
        to_huggingface(model, config, Bytes(), tmp_path / "theirs")
        return tmp_path / "theirs"

    return write


def test_import_then_generate(clearformer, folder, tmp_path):
    done = clearformer("import", str(folder()), "--out", str(tmp_path / "run"))
    assert done.code == 0, done.err
    first, last = done.out.splitlines()[0], done.out.splitlines()[-1]
    assert first.startswith("gpt2-theirs: ")
    assert "2 layers, width 16, 4 heads, length 12; bytes of 256; head NextToken" in first
    assert last == f'next: clearformer generate {tmp_path / "run"} "Once upon"'
    spoken = clearformer("generate", str(tmp_path / "run"), "Once", "--length", "20")
    assert spoken.code == 0
    assert spoken.out.startswith("Once")
    assert clearformer("describe", str(tmp_path / "run")).code == 0


def test_the_run_is_named_after_the_folder(clearformer, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert clearformer("import", str(folder())).code == 0
    assert (tmp_path / "runs/theirs/checkpoints/step-0/model.safetensors").exists()
    again = clearformer("import", str(tmp_path / "theirs"))
    assert again.complaint == "runs/theirs is there already: choose another --out"


def test_an_encoder_is_embedded(clearformer, folder, tmp_path):
    done = clearformer("import", str(folder("bert")), "--out", str(tmp_path / "run"))
    assert "head Pretraining" in done.out
    assert "next: clearformer embed" in done.out
    wrong = clearformer("generate", str(tmp_path / "run"), "x").complaint
    assert "is no generator" in wrong


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda path: (path / "config.json").unlink(), "has no config.json"),
        (lambda path: (path / "model.safetensors").unlink(), "has no weights"),
        (
            lambda path: (path / "model.safetensors").write_bytes(b"\x80\x04"),
            "no sound safe",
        ),
        (lambda path: (path / "config.json").write_text('{"model_type": "t5"}'), "'t5'"),
        (lambda path: (path / "tokenizer.json").unlink(), "has no tokenizer"),
        (lambda path: (path / "tokenizer.json").write_text("{}"), "tokenizer.json"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(clearformer, folder, tmp_path, change, sentence):
    path = folder()
    change(path)
    out = tmp_path / "runs/x"
    assert sentence in clearformer("import", str(path), "--out", str(out)).complaint
    assert not out.exists()
    assert not out.parent.exists() or list(out.parent.iterdir()) == []


def test_a_setting_that_is_not_understood_is_named(clearformer, folder, tmp_path):
    path = folder()
    settings = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**settings, "shiny": 2}))
    complaint = clearformer("import", str(path), "--out", str(tmp_path / "x")).complaint
    assert "sets shiny to 2, which clearformer does not understand" in complaint


def test_what_is_nowhere(clearformer):
    assert "there is no folder or file /no/such" in clearformer("import", "/no/such").complaint
