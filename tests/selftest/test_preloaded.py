"""Modules imported before a command is forked."""

import sys

from clearformer.selftest import preloaded, processes


def test_heavy_modules_are_preloaded():
    assert preloaded.__name__ in processes.MODULES
    assert {"torch", "clearformer.runs.run", "clearformer.explore.figures"} <= set(sys.modules)
