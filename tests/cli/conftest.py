"""Fixtures: a small generator for the command-line tests."""

import pytest

TINY = ("--length", "32", "--layers", "1", "--width", "16", "--heads", "4", "--model.hidden", "32",
        "--batch-size", "8", "--threads", "1", "--lr", "0.01", "--steps", "60",
        "--evaluations", "1")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with a small byte-level generator, its text and its cache."""
    folder = tmp_path_factory.mktemp("writing")
    (folder / "t.txt").write_text("\n".join(f"{i} green bottles" for i in range(300)))
    return folder


@pytest.fixture
def run(folder, clearformer, monkeypatch):
    """The run of that generator, unless a file of tests has another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    out = folder / "run"
    if not out.exists():
        done = clearformer(
            "train", "modern", "--data", str(folder / "t.txt"), "--out", str(out), *TINY
        )
        assert done.code == 0, done.err
    return str(out)
