"""Runs made by an earlier version still open, give the same logits, and resume.

`earlier/runs-0.1.tar.xz` holds one tiny run of each family, cut back to step 2 of 4, and
`expected.json`: what the version that made them computed afterwards. Never make it anew; a later
version adds an archive of its own.
"""

import json
import tarfile
from pathlib import Path

import pytest
import torch

from clearformer.runs import checkpoint, metrics
from clearformer.runs.load import open_any
from clearformer.selftest import command_runner

ARCHIVE = Path(__file__).parent / "earlier" / "runs-0.1.tar.xz"
DATA = {
    "bert": "documents.txt",
    "classifier": "rows.csv",
    "generator": "text.txt",
    "gpt2": "text.txt",
    "masked": "documents.txt",
    "modern": "text.txt",
    "original": "pairs.tsv",
    "pairs": "rows.csv",
    "sparse": "text.txt",
    "xl": "text.txt",
}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    place = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    return place / "runs-0.1"


@pytest.fixture(scope="module")
def expected(earlier):
    return json.loads((earlier / "expected.json").read_text())


def test_archive_contains_every_family(expected):
    assert sorted(expected) == sorted(DATA)


@pytest.mark.parametrize("name", sorted(DATA))
def test_logits_are_unchanged(earlier, expected, name):
    model, *_ = open_any(earlier / name / "checkpoints" / "step-2")
    ids = torch.tensor([expected[name]["ids"]])
    with torch.inference_mode():
        inputs = (ids, ids[:, :8]) if name == "original" else (ids,)
        found = model(*inputs)
    found = found if isinstance(found, tuple) else (found,)
    for logits, before in zip(found, expected[name]["logits"], strict=True):
        torch.testing.assert_close(
            logits.flatten()[:64], torch.tensor(before), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("name", sorted(DATA))
def test_resume_continues_run(earlier, expected, name, tmp_path, monkeypatch):
    """The losses and weights of steps 3 and 4; bits may differ on another CPU."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run, data = earlier / name, earlier / DATA[name]
    outcome = command_runner.run(
        ["train", "--data", str(data), "--resume", "--quiet", "--out", str(run)]
    )
    assert outcome.code == 0, outcome.err
    losses = {
        str(row["step"]): row["train_loss"]
        for row in metrics.read(run / "metrics.jsonl")
        if row["event"] == "step" and row["step"] > 2
    }
    assert losses == pytest.approx(expected[name]["losses_3_4"], rel=1e-4)
    found = checkpoint.newest(run / "checkpoints", print)
    assert found is not None
    assert found.step == 4
    weights = found.tensors("model.safetensors")
    sums = {key: weights[key].double().abs().sum().item() for key in weights}
    before = {key: absolute for key, (_, absolute) in expected[name]["weights_4"].items()}
    assert sums == pytest.approx(before, rel=1e-4)
