"""`clearformer export`: from a run to a folder that other tools open, and back."""

from dataclasses import replace

import pytest
import torch

from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.data import DataFolders
from clearformer.families import modern
from clearformer.hub.importing import import_checkpoint
from clearformer.runs.load import open_run
from clearformer.runs.run import Run


@pytest.fixture
def run(tmp_path):
    """A run of a few steps."""
    source = tmp_path / "text.txt"
    source.write_text("some words to learn from, again and again\n" * 100)
    model = replace(modern("tiny"), length=16, layers=1, width=16, heads=2, key_heads=1, hidden=24)
    config = RunConfig(
        model=model,
        data=DataConfig(source=str(source)),
        train=TrainConfig(learning_rate=1e-2, batch_size=4, steps=3, evaluations=1, threads=1),
    )
    run = Run(config, tmp_path / "run", DataFolders(cache=tmp_path / "cache"))
    list(run.events())
    return tmp_path / "run"


def test_export_import_round_trip(clearformer, run, tmp_path):
    out = tmp_path / "out"
    done = clearformer("export", str(run), "--out", str(out))
    assert done.code == 0, done.err
    assert done.out.startswith(f"{out}: Qwen3ForCausalLM; opened again: logits within ")
    assert "50 greedy tokens the same" in done.out
    assert clearformer("import", str(out), "--out", str(tmp_path / "again")).code == 0
    tokens = torch.arange(10)[None]
    with torch.no_grad():
        before = open_run(run).model(tokens)
        assert open_run(tmp_path / "again").model(tokens).equal(before)


def test_export_to_safetensors(clearformer, run, tmp_path):
    out = tmp_path / "x.safetensors"
    done = clearformer("export", str(run), "--to", "safetensors", "--out", str(out))
    assert done.code == 0, done.err
    assert import_checkpoint(out).config == open_run(run).config.model
    assert clearformer("import", str(out), "--out", str(tmp_path / "again")).code == 0
    assert clearformer("generate", str(tmp_path / "again"), "some", "--max-tokens", "5").code == 0


def test_errors_are_one_line(clearformer, run, tmp_path):
    assert "is not a run" in clearformer("export", str(tmp_path), "--out", "x").complaint
    taken = clearformer("export", str(run), "--out", str(run)).complaint
    assert taken == f"{run} already exists: choose another folder"
    named = clearformer("export", str(run), "--to", "safetensors", "--out", str(tmp_path / "y"))
    assert named.complaint.endswith("must end in .safetensors")
