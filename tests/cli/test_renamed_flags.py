"""Renamed flags keep working, with a note."""

from dataclasses import fields

import pytest

from clearformer.cli import main
from clearformer.cli.renamed_flags import RENAMED, current_flags


@pytest.mark.parametrize(
    ("words", "current"),
    [
        (["generate", "run", "--length", "3"], ["generate", "run", "--max-tokens", "3"]),
        (["generate", "run", "--length=3"], ["generate", "run", "--max-tokens=3"]),
        (["generate", "--past_context=stop"], ["generate", "--context-overflow=stop"]),
        (["translate", "run", "--batch", "3"], ["translate", "run", "--batch-size", "3"]),
        (["train", "--batch", "3"], ["train", "--batch-size", "3"]),
        (["train", "--train.clip=none"], ["train", "--train.gradient-clip=none"]),
        (["train", "--wait_seconds", "3"], ["train", "--timeout-seconds", "3"]),
        (["train", "--masking.share", "0.3"], ["train", "--masking.rate", "0.3"]),
        (["train", "--past.length", "8"], ["train", "--cache.length", "8"]),
        (["plan", "--keep", "3"], ["plan", "--keep-checkpoints", "3"]),
    ],
)
def test_old_flag_becomes_new_flag_with_note(words, current, capsys):
    assert current_flags(words) == current
    old, new = (
        next(word for word in each if word.startswith("--")).partition("=")[0]
        for each in (words, current)
    )
    assert capsys.readouterr().err == f"note: {old.replace('_', '-')} is now {new}\n"


def test_repeated_old_flag_is_noted_once(capsys):
    assert current_flags(["fill", "--top", "3", "--top=4"]) == ["fill", "--top-k", "3", "--top-k=4"]
    assert capsys.readouterr().err == "note: --top is now --top-k\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["reach", "--length", "32", "--layers=4"],
        ["generate", "run", "--length-penalty", "1", "--max-tokens=4", "--stop=--length"],
    ],
)
def test_other_arguments_are_unchanged(words, capsys):
    assert current_flags(words) == words
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "both", [("--length", "3", "--max-tokens", "4"), ("--max-tokens=4", "--length=3")]
)
def test_rejects_old_and_new_flag_together(clearformer, both):
    done = clearformer("generate", "no-run", "x", *both)
    assert done.complaint == "--length is the old name of --max-tokens: give --max-tokens alone"


def test_new_flags_exist():
    verbs = {verb: main.command_class(verb) for verb in main.VERBS}
    for verb, table in RENAMED.items():
        if verb in ("train", "plan"):  # their flags depend on the preset
            continue
        names = {f"--{field.name.replace('_', '-')}" for field in fields(verbs[verb])}
        assert {flag.replace("--no-", "--") for flag in table.values()} <= names
        assert not set(table) & names


def test_command_with_old_flag_runs(clearformer, run):
    new = clearformer("generate", run, "12 g", "--max-tokens", "5", "--quiet")
    old = clearformer("generate", run, "12 g", "--length", "5", "--quiet")
    assert (old.code, old.out) == (0, new.out)
    assert old.err == "note: --length is now --max-tokens\n"
