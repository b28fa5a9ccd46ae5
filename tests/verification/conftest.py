"""Fixtures: the models of benchmarks/verify_models, correct and with a planted bug."""

import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def planted():
    """A model of a source, with texts replaced: planted("gpt", old, new, ...)."""
    sys.path.insert(0, str(BENCHMARKS))
    from verify_models.sources import SOURCES

    def make(source, *edits):
        pairs = [(edits[at], edits[at + 1]) for at in range(0, len(edits), 2)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return SOURCES[source].model(pairs)

    yield make
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def probe(planted):
    """A probe of a source with texts replaced."""
    from clearformer.verification.probe import Probe

    return lambda *arguments, **options: Probe(planted(*arguments), **options)
