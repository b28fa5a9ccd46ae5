"""Calling conventions: inferred from signatures and outputs."""

import pytest
import torch
from torch import nn

from clearformer.verification.calls import (
    Form,
    Inputs,
    candidates,
    lengths,
    loss_output,
    lower_triangle,
    main_output,
    widths,
)


def module(forward):
    return type("Made", (nn.Module,), {"forward": forward})()


@pytest.mark.parametrize(
    ("forward", "form"),
    [
        (lambda self, x: x, Form("x")),
        (lambda self, query, key, value: key, Form("query", same=("key", "value"))),
        (lambda self, x, memory: x, Form("x", source="memory")),
        (lambda self, src, tgt: tgt, Form("tgt", source="src", source_is_tokens=True)),
        (lambda self, idx, targets=None: idx, Form("idx")),
    ],
)
def test_first_candidate_form(forward, form):
    assert next(candidates(module(forward))) == form


def test_required_mask_is_none_at_first():
    form = next(candidates(module(lambda self, x, mask: x)))
    assert form.supplied["mask"](2, 3, torch.float32) is None


def test_time_first_arguments():
    form = Form(None, time_first=True)
    (stream,), _ = form.arguments(Inputs(torch.zeros(2, 5, 4)), torch.float32)
    assert stream.shape == (5, 2, 4)


def test_lower_triangle_masks():
    table = lower_triangle("11TT", hide=False)(2, 3, torch.float32)
    assert table.shape == (1, 1, 3, 3)
    assert table[0, 0].equal(torch.ones(3, 3).tril().bool())
    assert lower_triangle("TT", hide=True)(2, 3, torch.float32).equal(~table[0, 0])


def test_guesses_width_and_length():
    model = nn.Linear(24, 7)
    assert widths(model)[0] == 24
    assert lengths(model, 3)[0] == 11  # 7 is a size of the model


def test_main_output_and_loss_output():
    logits, loss = torch.zeros(2, 3, 4), torch.tensor(1.0)
    assert main_output((logits, loss)) is logits
    assert main_output({"logits": logits, "x": torch.zeros(2, 3, 5)}) is logits
    assert main_output("text") is None
    assert loss_output((logits, loss)) is loss
    assert loss_output({"logits": logits, "loss": loss}) is loss
    assert loss_output(logits) is None
