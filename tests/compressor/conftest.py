"""Fixtures: small language models over bytes."""

import pytest
import torch

from clearformer.builder import build
from clearformer.model import Model
from clearformer.text import Bytes


@pytest.fixture(scope="session")
def byte_model(small, scrambled):
    def make(family="modern", tokenizer=None, seed=1, **changes):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            tokenizer = tokenizer or Bytes()
            config = small(family, **{"vocabulary": tokenizer.size, **changes})
            return Model(scrambled(build(config)).eval(), config, tokenizer)

    return make


@pytest.fixture(scope="session")
def text(prose):
    return prose.encode()[:600]
