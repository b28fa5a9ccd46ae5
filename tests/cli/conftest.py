"""Run the command line in this process: what it says, and how it leaves."""

from dataclasses import dataclass

import pytest

from clearformer.cli.main import main

TINY = ("--length", "32", "--layers", "1", "--width", "16", "--heads", "4", "--model.hidden", "32",
        "--batch-size", "8", "--threads", "1", "--lr", "0.01", "--steps", "60",
        "--evaluations", "1")  # fmt: skip


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def complaint(self):
        """The one line of a clean error."""
        assert self.code == 2, self.out + self.err
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("clearformer: ")
        assert "Traceback" not in self.err
        return self.err.removeprefix("clearformer: ").strip()


@pytest.fixture
def clearformer(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments):
        capsys.readouterr()
        code = 0
        try:
            main(arguments)
        except SystemExit as leaving:
            code = leaving.code or 0
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a small generator of bytes, its text and its cache lie."""
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
