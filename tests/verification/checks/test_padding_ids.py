"""Padding that a model finds by its id."""

import pytest
import torch
from torch import nn

from clearformer.verification.check import verify


class Scorer(nn.Module):
    """A classifier that masks and averages by the padding id; `bug` changes one step."""

    def __init__(self, bug=""):
        super().__init__()
        self.pad_id, self.bug = 0, bug
        self.words, self.places = nn.Embedding(30, 12), nn.Embedding(32, 12)
        self.attend = nn.MultiheadAttention(12, 3, batch_first=True)
        self.out = nn.Linear(12, 2)

    def forward(self, tokens):
        hide = tokens != self.pad_id if self.bug == "inverted" else tokens == self.pad_id
        mask = hide.roll(1, 0) if self.bug == "rows" else None if self.bug == "unused" else hide
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        x = x + self.attend(x, x, x, key_padding_mask=mask, need_weights=False)[0]
        x = x.masked_fill(hide[..., None], 0.0)
        count = tokens.shape[1] if self.bug == "length" else (~hide).sum(1, keepdim=True)
        return self.out(x.sum(1) / count)


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        ("length", "padding-leak-right"),
        ("unused", "padding-leak-right"),
        ("rows", "mask-broadcast-wrong"),
        ("inverted", "mask-inverted"),
    ],
)
def test_each_step_that_forgets_padding_is_named(bug, name):
    assert name in verify(Scorer(bug)).names


def test_a_model_that_leaves_padding_out_is_fine():
    report = verify(Scorer())
    assert report, str(report)


class Pooler(nn.Module):
    """Reads the output at the end mark: a comparison with an id that is no padding."""

    def __init__(self):
        super().__init__()
        self.eos_id = 0
        self.words, self.places = nn.Embedding(30, 12), nn.Embedding(32, 12)
        self.attend = nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, tokens):
        at = (tokens == self.eos_id).int().argmax(1)
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        x = x + self.attend(x, x, x, need_weights=False)[0]
        return x[torch.arange(len(x)), at]


def test_other_marks_are_no_padding():
    report = verify(Pooler())
    assert report, str(report)
