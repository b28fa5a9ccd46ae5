"""A compiled loss is the loss, and where compiling fails, the run goes on; F26 at the command
line is tests/reliability."""

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

from clearformer.builder import build
from clearformer.kernels import vocabulary_loss
from clearformer.training.torch_compile import compiled


class Model(nn.Module):
    """A minimal model with a loss."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss


@pytest.mark.filterwarnings("ignore")  # the compiler looks at .grad, and torch warns of it
def test_compiled_model_uses_chunked_loss(small, example, gradients, monkeypatch):
    monkeypatch.setattr(vocabulary_loss, "CHUNK", 5 * 13)
    config = small("gpt2")
    model, batch = build(config).train(), example(config, size=4)
    expected = gradients(model, batch)
    chunks = []

    def noted(*arguments):
        chunks.append(arguments)
        return slope(*arguments)

    slope = vocabulary_loss._loss_and_gradient
    monkeypatch.setattr(vocabulary_loss, "_loss_and_gradient", noted)
    torch.compiler.reset()
    model.loss = compiled(model, backend="aot_eager")
    for name, value in gradients(model, batch).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)
    assert len(chunks) == 7  # 32 rows, 5 at a time


def test_compile_failure_is_reported_once(monkeypatch):
    tried, said = [], []

    def failing(loss):
        def compile_now(batch):
            tried.append(batch)
            raise BackendCompilerFailed(loss, RuntimeError("no compiler"), None)

        return compile_now

    monkeypatch.setattr(torch, "compile", failing)
    loss = compiled(Model(lambda batch: batch + 1), said.append)
    assert [loss(1), loss(2)] == [2, 3]
    assert tried == [1]
    assert len(said) == 1
    assert "the run continues without it" in said[0]


def test_model_errors_are_not_swallowed(monkeypatch):
    def broken(batch):
        raise ValueError("a mistake")

    monkeypatch.setattr(torch, "compile", lambda loss: loss)
    with pytest.raises(ValueError, match="a mistake"):
        compiled(Model(broken), print)(1)
