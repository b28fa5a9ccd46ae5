"""A way back from torch.compile; F26 at the command line is tests/reliability."""

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from clearformer.train.compiling import compiled


def test_it_tries_once_and_says_it_once(monkeypatch):
    tried, said = [], []

    def failing(loss):
        def compile_now(batch):
            tried.append(batch)
            raise BackendCompilerFailed(loss, RuntimeError("no compiler"), None)

        return compile_now

    monkeypatch.setattr(torch, "compile", failing)
    loss = compiled(lambda batch: batch + 1, said.append)
    assert [loss(1), loss(2)] == [2, 3]
    assert tried == [1]
    assert len(said) == 1
    assert "the run goes on without it" in said[0]


def test_a_mistake_of_the_model_is_its_own(monkeypatch):
    def broken(batch):
        raise ValueError("a mistake")

    monkeypatch.setattr(torch, "compile", lambda loss: loss)
    with pytest.raises(ValueError, match="a mistake"):
        compiled(broken, print)(1)
