"""The command line as a whole: help, version, and one line for every error."""

import errno
import os
import re
import shlex
import subprocess
import sys

import pytest

from clearformer import __version__
from clearformer.cli.main import VERBS, parse, system_error


def test_help_lists_every_command(clearformer):
    outcome = clearformer("--help")
    assert outcome.code == 0
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\w.+$", outcome.out, re.M), verb


def test_without_command_shows_five_examples(clearformer):
    outcome = clearformer()
    assert outcome.code == 0
    shown = [
        shlex.split(line.split("   ")[0]) for line in re.findall("^  (clear.+)", outcome.out, re.M)
    ]
    assert len(shown) == 5
    for _, *words in shown:
        parse(words)  # each can be typed as printed


def test_every_command_has_help(clearformer):
    for verb in VERBS:
        outcome = clearformer(verb, "--help")
        assert outcome.code == 0
        assert f"usage: clearformer {verb}" in outcome.out


def test_prints_version(clearformer):
    assert clearformer("--version").out == f"clearformer {__version__}\n"


def test_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "clearformer", "--version"], capture_output=True, text=True
    )
    assert done.stdout == f"clearformer {__version__}\n"


@pytest.mark.parametrize("words", [("data",), ("describe", "modern-tiny")])
def test_closed_pipe_exits_with_141(words):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-u", "-m", "clearformer", *words]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_closed_stdout_is_not_an_error():
    command = f"exec {sys.executable} -m clearformer data >&-"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_ascii_terminal_is_supported():
    command = [sys.executable, "-m", "clearformer", "describe", "modern-tiny"]
    plain = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=plain)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [("train",), ("plan", "--memory", "1GB")])
def test_rejects_preset_that_does_not_come_first(clearformer, words):
    said = clearformer(*words, "--layers", "1", "gpt2-small").complaint
    assert said.startswith(f"'gpt2-small' comes first: clearformer {words[0]} gpt2-small --")


def test_unknown_command_suggests_nearest(clearformer):
    told = clearformer("tarin").complaint
    assert told == "there is no command 'tarin': did you mean 'train'? See clearformer --help"


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "/a/b"),
            "/a/b: permission denied: ch",
        ),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "/a"), "/a: it is a folder, but a file"),
        (OSError(errno.EIO, "Input/output error", "/a"), "/a: Input/output error"),
        (OSError("the disk has gone"), "the disk has gone"),
    ],
)
def test_system_errors_are_one_sentence(mistake, sentence):
    assert system_error(mistake).startswith(sentence)


def test_reports_too_long_file_name(clearformer):
    told = clearformer("generate", "x" * 5000, "a").complaint
    assert "File name too long" in told
    assert "Errno" not in told
    assert len(told) < 300
