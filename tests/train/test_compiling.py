"""A compiled loss is the loss, and a large vocabulary is still taken in chunks."""

import pytest
import torch

from clearformer.build import build
from clearformer.core import vocabulary
from clearformer.train.compiling import compiled


@pytest.mark.filterwarnings("ignore")  # the compiler looks at .grad, and torch warns of it
def test_a_compiled_model_keeps_its_loss_in_chunks(small, example, gradients, monkeypatch):
    monkeypatch.setattr(vocabulary, "CHUNK", 5 * 13)
    config = small("gpt2")
    model, batch = build(config).train(), example(config, size=4)
    expected = gradients(model, batch)
    chunks = []

    def noted(*arguments):
        chunks.append(arguments)
        return slope(*arguments)

    slope = vocabulary._with_slope
    monkeypatch.setattr(vocabulary, "_with_slope", noted)
    torch.compiler.reset()
    model.loss = compiled(model, backend="aot_eager")
    for name, value in gradients(model, batch).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)
    assert len(chunks) == 7  # 32 rows, 5 at a time
