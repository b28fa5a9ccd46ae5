"""What is imported before a command is forked."""

import sys

from clearformer.selftest import nursery, preloaded


def test_the_heavy_parts_are_there():
    assert preloaded.__name__ in nursery.MODULES
    assert {"torch", "clearformer.train.run", "clearformer.explore.figures"} <= set(sys.modules)
