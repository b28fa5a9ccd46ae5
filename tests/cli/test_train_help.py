"""The usual settings in `clearformer train --help`."""

import re

from clearformer.cli.main import parse
from clearformer.cli.train import from_config
from clearformer.cli.train_help import USUAL_SETTINGS, usual_help
from clearformer.runs.start import preset_config


def test_every_flag_exists(monkeypatch):
    """Each flag is accepted, or refused for its value and not for its name."""
    for settings in USUAL_SETTINGS.values():
        for flags, _, _ in settings:
            for flag in flags.split(", "):
                said = ""
                try:
                    parse(["train", "classifier-imdb", flag, "1"])
                except ValueError as problem:
                    said = str(problem)
                assert "has no flag" not in said


def test_defaults_are_those_of_the_preset(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = "\n".join(usual_help(from_config("classifier-imdb", preset_config("classifier-imdb"))))
    assert re.search(r"--layers +Number of layers. Default: 6.", text)
    assert "PRESET is classifier-imdb here" in " ".join(text.split())


def test_narrow_terminals_are_respected(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    lines = list(usual_help(from_config("modern-tiny", preset_config("modern-tiny"))))
    assert max(map(len, lines[2:])) <= 50
