"""Fixtures: one server with tiny models of every family per process."""

import importlib.util
import sys
from pathlib import Path

import pytest


def load(name):
    """A module or a package that stands beside this file."""
    here = Path(__file__).parent
    path = here / name / "__init__.py" if (here / name).is_dir() else here / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"explorer_{name}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny():
    """The module that writes tiny models and serves them."""
    return load("models")


@pytest.fixture(scope="session")
def recomputed():
    """The module that computes the numbers of a page again."""
    return load("recomputed")


@pytest.fixture(scope="session")
def tiny_runs(tiny, tmp_path_factory):
    return tiny.write_all(tmp_path_factory.mktemp("explorer") / "runs")


@pytest.fixture(scope="session")
def client(explorer_server):
    return explorer_server.client


@pytest.fixture(scope="session")
def traced(client):
    """The answer to a new trace of a model."""

    def ask(model, text="the cat sat on the mat", **more):
        return client.post("/api/traces", {"model": model, "text": text, **more})

    return ask


@pytest.fixture(scope="session")
def loaded(explorer_server):
    """A model in memory, without a server."""
    library = explorer_server.library

    def open_model(id, checkpoint=None):
        entry = library.entry(id)
        chosen = library.checkpoint(entry, checkpoint)
        return entry.worker.submit(lambda: library.load(entry, chosen)).result()

    return open_model


@pytest.fixture(scope="session")
def explorer_server(tiny, tiny_runs):
    with tiny.serving(tiny_runs) as server:
        yield server


@pytest.fixture
def one(tiny, tmp_path):
    """Writes a run with two checkpoints under a name."""
    tokenizer = tiny.tokenizer_of("characters")
    config = tiny.config_of("gpt2", tokenizer, {})
    model = tiny.build(config)
    return lambda name: tiny.write_run(
        tmp_path / "runs" / name, config, model, tokenizer, steps=(5, 15)
    )
