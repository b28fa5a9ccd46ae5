"""Small models."""

import pytest
import torch


@pytest.fixture
def gpt2(writer):
    return writer("gpt2", layers=3, heads=4, width=32, hidden=48, vocabulary=20, length=64).module


@pytest.fixture(scope="session")
def of_family(small, scrambled):
    """A small model of a family with random weights, and its config."""

    def make(family):
        from clearformer.builder import build
        from clearformer.model import Model

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2)
            config = small(family)
            return Model(scrambled(build(config)).eval(), config, None)

    return make


@pytest.fixture(scope="session")
def loaded_characters(small, scrambled):
    """A language model that reads characters."""
    import dataclasses

    from clearformer.builder import build
    from clearformer.model import Model
    from clearformer.text import train

    tokenizer = train("characters", "the cat sat on the mat. a bad dog")
    config = dataclasses.replace(small("gpt2"), vocabulary=tokenizer.size, length=64)
    return Model(scrambled(build(config)).eval(), config, tokenizer)
