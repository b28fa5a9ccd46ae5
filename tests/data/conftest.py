"""Fixtures: where larger data is, if present."""

import os
from pathlib import Path

import pytest

from clearformer.data import DataFolders


@pytest.fixture(scope="session")
def shared():
    """The folder that CLEARFORMER_DATA names; tests that need it are skipped without."""
    folder = os.environ.get("CLEARFORMER_DATA")
    if not folder:
        pytest.skip("CLEARFORMER_DATA does not name a folder with corpora")
    return DataFolders(folder=Path(folder))
