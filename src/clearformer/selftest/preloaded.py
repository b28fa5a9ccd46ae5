"""Imports of a command, done once before processes are forked: see processes.py."""

import clearformer.explore.figures
import clearformer.generate.language_model
import clearformer.generate.stream
import clearformer.hub.importing
import clearformer.runs.card
import clearformer.runs.run  # noqa: F401
from clearformer.selftest import command_runner

command_runner.run(["train", "--help"])  # the parser caches its own sources
