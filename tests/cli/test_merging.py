"""Adapters on the command line: train, use, describe, merge, export and import."""

import pytest

ADAPTER = ("--adapter", "lora", "--rank", "2", "--alpha", "4", "--adapter-targets", "q,v,down",
           "--adapter-dropout", "0.1", "--steps", "4", "--evaluations", "1", "--threads", "1",
           "--batch-size", "8", "--compile", "off")  # fmt: skip


@pytest.fixture
def talk(run, folder, clearformer):
    """An adapter for the generator of these tests."""
    out = folder / "talk"
    if not out.exists():
        (folder / "u.txt").write_text("\n".join(f"{i} blue boxes" for i in range(300)))
        done = clearformer(
            "train", "--from", run, "--data", str(folder / "u.txt"), *ADAPTER, "--out", str(out)
        )  # fmt: skip
        assert done.code == 0, done.err
        assert "parameters, of which" in done.out
        assert "learn, on" in done.out
    return str(out)


def test_every_command_opens_an_adapter(talk, clearformer):
    assert clearformer("generate", talk, "5 green", "--max-tokens", "5").code == 0
    assert "bits per byte" in clearformer("evaluate", talk).out
    described = clearformer("describe", talk).out
    assert "adapter: LoRA of rank 2, alpha 4, targets q,v,down:" in described
    assert "for the model in" in described


def test_merge(talk, clearformer, tmp_path):
    out = str(tmp_path / "merged")
    said = clearformer("merge", talk, "--out", out).out
    assert "parameters, which no longer need another run" in said
    prompt = ("5 green", "--max-tokens", "8", "--temperature", "0")
    assert clearformer("generate", out, *prompt).out == clearformer("generate", talk, *prompt).out
    complaint = clearformer("merge", out, "--out", str(tmp_path / "again")).complaint
    assert complaint == f"{out} has no adapter, so there is nothing to merge: use it as it is"


def test_export_and_import(run, talk, clearformer, tmp_path):
    peft = str(tmp_path / "peft")
    said = clearformer("export", talk, "--to", "peft", "--out", peft).out
    assert "LoRA for PEFT; opened again: logits within" in said
    again = str(tmp_path / "again")
    said = clearformer("import", peft, "--base", run, "--out", again).out
    assert f"LoRA for {run}: " in said
    prompt = ("5 green", "--max-tokens", "8", "--temperature", "0")
    assert clearformer("generate", again, *prompt).out == clearformer("generate", talk, *prompt).out
    complaint = clearformer("import", peft, "--out", again).complaint
    assert complaint == f"{peft} is an adapter of PEFT: add --base and the run of its model"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--adapter", "lara"), "known: LoRA, DoRA, none"),
        (("--adapter", "lora", "--rank", "0"), "rank is 0, but it must be at least 1"),
        (("--adapter", "lora", "--adapter-targets", "w"), "targets has 'w'"),
        (("--adapter", "lora", "--freeze", "body"), "but with an adapter the model stays as it is"),
        (("--adapter", "lora", "--rank", "40"), "rank is 40, but q of stack.blocks.0.attention"),
    ],
)
def test_wrong_settings_are_one_sentence(run, folder, clearformer, tmp_path, words, sentence):
    done = clearformer(
        "train", "--from", run, "--data", str(folder / "t.txt"), "--steps", "1", "--threads", "1",
        *words, "--out", str(tmp_path / "x"),
    )  # fmt: skip
    assert done.code == 2
    assert sentence in done.complaint


def test_an_adapter_needs_a_model(folder, clearformer, tmp_path):
    done = clearformer(
        "train", "modern", "--data", str(folder / "t.txt"), "--adapter", "dora", "--steps", "1",
        "--length", "32", "--out", str(tmp_path / "x"),
    )  # fmt: skip
    assert done.complaint == "train.adapter changes a trained model: add --from RUN"
