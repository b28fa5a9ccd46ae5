"""Arguments of the public functions: one or many texts or token ids, and unknown keywords."""

import inspect

import numpy as np
import pytest
import torch

from clearformer.arguments import as_batch, as_text, check_keywords


@pytest.mark.parametrize(
    ("given", "batch", "single"),
    [
        ("a", ["a"], True),
        ([1, 2], [[1, 2]], True),
        (np.array([1, 2]), [[1, 2]], True),
        (torch.tensor([1, 2]), [[1, 2]], True),
        (["a", "b"], ["a", "b"], False),
        (("a",), ["a"], False),
        (np.array(["a", "b"]), ["a", "b"], False),
        ([[1, 2], "b"], [[1, 2], "b"], False),
        (torch.tensor([[1, 2], [3, 4]]), [[1, 2], [3, 4]], False),
        ((each for each in ["a"]), ["a"], False),
        ([], [], False),
        ("", [""], True),
    ],
)
def test_as_batch_accepts_one_or_many_texts(given, batch, single):
    assert as_batch(given) == (batch, single)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (3, r"texts is 3, but it must be a string, a list of token ids, or a list of either"),
        (None, r"texts is None, but"),
        (b"a", r"texts is b'a', but"),
        ({"a": 1}, r"texts is \{'a': 1\}, but"),
        (["a", 3.5], r"texts\[1\] is 3.5, but it must be a string or a list of token ids"),
        (["a", None], r"texts\[1\] is None, but"),
        (["a", []], r"texts\[1\] is \[\], but"),
        ([True, False], r"texts\[0\] is True, but"),
        (torch.tensor([0.5]), r"texts\[0\] is 0.5, but"),
    ],
)
def test_as_batch_rejects_invalid_items_by_index(given, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        as_batch(given)


def test_as_text_accepts_one_text():
    assert as_text("a") == "a"
    assert as_text((1, 2)) == [1, 2]
    with pytest.raises(ValueError, match="prompt is a list of 2 texts, but it must be one text"):
        as_text(["a", "b"], "prompt")


def test_unknown_keyword_suggests_nearest():
    @check_keywords
    def load(path, *, device="cpu"):
        """Load."""
        return path, device

    assert load("a", device="b") == ("a", "b")
    assert list(inspect.signature(load).parameters) == ["path", "device"]
    assert load.__doc__ == "Load."
    with pytest.raises(
        ValueError, match=r"load has no parameter 'devise': did you mean 'device'\?"
    ):
        load("a", devise="b")
    with pytest.raises(ValueError, match="load has no parameter 'x': known: path, device"):
        load("a", x=1)
