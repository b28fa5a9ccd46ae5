"""Running commands inside this process."""

import sys

import pytest

from clearformer.selftest import command_runner


def test_user_error_is_clean_and_defect_is_not(monkeypatch):
    words = sys.argv
    mistake = command_runner.run(["train", "gpt3"])
    assert (mistake.code, mistake.clean) == (2, True)
    assert sys.argv is words
    assert command_runner.run(["--version"]).out.startswith("clearformer ")

    def broken(arguments):
        raise BaseException("as a panic of a library would")

    monkeypatch.setattr("clearformer.cli.main.parse", broken)
    defect = command_runner.run(["describe"])
    assert (defect.code, defect.clean) == (1, False)


@pytest.mark.parametrize(("err", "clean"), [("a\n", True), ("a\nb\n", False), ("", False)])
def test_clean_error_is_one_line(err, clean):
    assert command_runner.Outcome(2, "", err).clean is clean
