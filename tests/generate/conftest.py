"""Writers small enough to be compared with the whole model, token for token."""

import pytest
import torch

from clearformer.build import build
from clearformer.generate.writer import Writer


@pytest.fixture(scope="session")
def writer(small, scrambled):
    """A writer of ids with random weights, its family's numbers changed."""

    def make(family="gpt2", tokenizer=None, **changes):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            config = small(family, **changes)
            return Writer(scrambled(build(config)).eval(), config, tokenizer)

    return make


@pytest.fixture(scope="session")
def uncached():
    """The most likely continuation by the whole model, without any past."""

    @torch.inference_mode()
    def greedy(writer, prompt, most):
        text = list(prompt)
        for _ in range(most):
            text.append(int(writer.model(torch.tensor([text]))[0, -1].argmax()))
        return text[len(prompt) :]

    return greedy
