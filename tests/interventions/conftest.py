"""A small GPT-2, and the hash of a model."""

import hashlib

import pytest


@pytest.fixture
def gpt2(writer):
    return writer("gpt2", layers=3, heads=4, width=32, hidden=48, vocabulary=20, length=64).module


@pytest.fixture(scope="session")
def fingerprint():
    """A hash of everything a model is: weights, attributes of modules, hooks."""

    def state(module):
        rest = {
            name: value
            for name, value in vars(module).items()
            if name not in ("_parameters", "_buffers", "_modules")
        }
        return sorted((name, repr(value)) for name, value in rest.items())

    def make(model):
        found = hashlib.sha256()
        for name, parameter in model.state_dict().items():
            found.update(name.encode() + parameter.detach().numpy().tobytes())
        for name, module in model.named_modules():
            found.update(repr((name, type(module), state(module))).encode())
        return found.hexdigest()

    return make
