"""Targets: files, classes, factories, runs and folders; errors in one sentence."""

import pytest
import torch
import transformers
from torch import nn

from clearformer.verification import noise
from clearformer.verification.check import verify
from clearformer.verification.targets import open_target

FILE = """
from torch import nn

class Needs(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.width, self.heads = width, heads

class Plain(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)

def factory():
    return Plain()

def number():
    return 3

ready = Plain()
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_classes_factories_and_modules(file):
    assert isinstance(open_target(f"{file}:Plain").model, nn.Linear)
    assert isinstance(open_target(f"{file}:factory").model, nn.Linear)
    assert isinstance(open_target(f"{file}:ready").model, nn.Linear)
    made = open_target(f"{file}:Needs(8, heads=4)").model
    assert (made.width, made.heads) == (8, 4)
    assert isinstance(open_target("torch.nn:Identity").model, nn.Identity)
    model = nn.Linear(2, 2)
    assert open_target(model).model is model
    assert isinstance(open_target(nn.Identity).model, nn.Identity)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "mine.py:Needs",
            "Needs needs arguments to be built (width): write 'mine.py:Needs(width=...)'",
        ),
        ("mine.py:Plane", "mine.py has no 'Plane': did you mean 'Plain'?"),
        ("mine.py:number", "number gives int, but a torch module is wanted"),
        ("mine.py:Needs(open())", "is no class: write Class, or Class(64, heads=4)"),
        ("mine.py", "'mine.py' names no model: write file.py:Class"),
        ("nowhere.py:A", "nowhere.py: there is no such file: check the path"),
        ("no.such.module:A", "no.such.module cannot be imported: ModuleNotFoundError"),
        ("mine.py:Needs(1, 2, 3)", "Needs cannot be built: TypeError"),
    ],
)
def test_rejects_invalid_targets(file, monkeypatch, text, sentence):
    monkeypatch.chdir(file.parent)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        open_target(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file_with_import_error_shows_it(tmp_path):
    (tmp_path / "bad.py").write_text("import torch\nraise RuntimeError('half a file')\n")
    with pytest.raises(ValueError, match=r"bad.py cannot be imported: RuntimeError: half a file"):
        open_target(f"{tmp_path}/bad.py:A")


def test_rejects_other_values():
    with pytest.raises(ValueError, match="int cannot be verified: pass a torch module"):
        open_target(3)


def test_opens_run(trained_translator):
    target = open_target(str(trained_translator))
    assert target.notes[0].startswith("the model of ")


def test_opens_hugging_face_folder_with_weights(tmp_path):
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=16, vocab_size=40)
    theirs = transformers.GPT2LMHeadModel(config)
    theirs.save_pretrained(tmp_path)
    opened = open_target(tmp_path)
    assert opened.notes == (f"the model of {tmp_path}, gpt2-{tmp_path.name}",)
    tokens = torch.tensor([[1, 2, 3]])
    expected = theirs.eval()(tokens).logits
    torch.testing.assert_close(opened.model(tokens), expected, atol=1e-5, rtol=1e-5)
    assert verify(tmp_path)


def test_large_model_is_checked_as_reduced_copy(monkeypatch):
    config = transformers.GPT2Config(n_layer=4, n_head=2, n_embd=16, n_positions=16, vocab_size=40)
    theirs = transformers.GPT2LMHeadModel(config)
    monkeypatch.setattr(noise, "LARGE", 1000)
    report = verify(theirs)
    assert report, str(report)
    assert any(
        "a copy with two layers and new weights is looked at" in n for n in report.assumptions
    )
    assert len(theirs.transformer.h) == 4
