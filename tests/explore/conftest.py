"""A server on tiny models of every family, one for all tests of a process."""

import importlib.util
from pathlib import Path

import pytest


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny():
    """The module that writes tiny models and serves them."""
    return load("models")


@pytest.fixture(scope="session")
def tiny_runs(tiny, tmp_path_factory):
    return tiny.write_all(tmp_path_factory.mktemp("explorer") / "runs")


@pytest.fixture(scope="session")
def explorer_server(tiny, tiny_runs):
    with tiny.serving(tiny_runs) as server:
        yield server
