"""The command line as a whole: help, version, and one clear line for every mistake."""

import os
import subprocess
import sys

import pytest

from clearformer import __version__


def test_help_names_every_verb(clearformer):
    outcome = clearformer("--help")
    assert outcome.code == 0
    assert "attend" in outcome.out
    assert "describe" in outcome.out
    assert clearformer().out == outcome.out


def test_version(clearformer):
    assert clearformer("--version").out == f"clearformer {__version__}\n"


def test_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "clearformer", "--version"], capture_output=True, text=True
    )
    assert done.stdout == f"clearformer {__version__}\n"


@pytest.mark.parametrize("words", [("data",), ("describe", "modern-tiny")])
def test_a_reader_that_leaves_early_is_no_mistake(words):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-u", "-m", "clearformer", *words]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_output_that_is_closed_is_no_mistake():
    command = f"exec {sys.executable} -m clearformer data >&-"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_of_few_letters_is_no_mistake():
    command = [sys.executable, "-m", "clearformer", "describe", "modern-tiny"]
    plain = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=plain)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [("train",), ("plan", "--memory", "1GB")])
def test_a_preset_that_does_not_come_first_is_not_ignored(clearformer, words):
    said = clearformer(*words, "--layers", "1", "gpt2-small").complaint
    assert said.startswith(f"'gpt2-small' comes first: clearformer {words[0]} gpt2-small --")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("atend",), ["atend", "train, evaluate, generate"]),
        (("attend", "a b", "--layr", "1"), ["--layr", "--layer"]),
        (("attend", "a b", "--layer", "one"), ["--layer", "one"]),
        (("attend",), ["text", "words to attend to", "attend --help"]),
        (("attend", "a b", "--mask", "some"), ["--mask", "some", "causal"]),
    ],
)
def test_a_mistake_in_the_words_is_one_line(clearformer, arguments, words):
    complaint = clearformer(*arguments).complaint
    for word in words:
        assert word in complaint
