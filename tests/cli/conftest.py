"""Run the command line in this process: what it says, and how it leaves."""

from dataclasses import dataclass

import pytest

from clearformer.cli.main import main


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
