"""Softmaxes: torch's own and those that are written out."""

import pytest
import torch
from torch import nn

from clearformer.verification.softmax import softmaxes
from clearformer.verification.trace import Recorder

FORMS = {
    "softmax": lambda x: x.softmax(-1),
    "exp and sum": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
    "shifted": lambda x: (
        (e := (x - x.max(-1, keepdim=True).values).exp()) / e.sum(dim=-1, keepdim=True)
    ),
    "masked": lambda x: (e := x.exp() * (x > 0)) / e.sum(dim=-1, keepdim=True),
    "logarithm": lambda x: x.log_softmax(dim=-1).exp(),
    "logsumexp": lambda x: (x - x.logsumexp(dim=-1, keepdim=True)).exp(),
}


def recorded(form):
    with Recorder(nn.Identity()).recording() as trace:
        out = form(torch.randn(3, 4))
    return list(softmaxes(trace)), out


@pytest.mark.parametrize("name", sorted(set(FORMS) - {"exp and sum"}))
def test_every_form_is_one_softmax_over_its_axis(name):
    (found,), out = recorded(FORMS[name])
    assert found.name == "softmax"
    assert found.argument(1, "dim") == -1
    assert found.value.equal(out)


@pytest.mark.parametrize("form", [lambda x: x / x.sum(-1, keepdim=True), lambda x: x.exp() / 2])
def test_other_divisions_are_none(form):
    assert recorded(form)[0] == []
