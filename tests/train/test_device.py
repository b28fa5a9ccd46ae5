"""Where a run computes."""

import pytest
import torch

from clearformer.train.device import device_of


def test_a_device_by_name_and_the_fastest_otherwise():
    assert device_of("cpu") == torch.device("cpu")
    assert device_of("auto").type in ("cpu", "cuda", "mps")


def test_a_device_that_is_none_is_said():
    with pytest.raises(ValueError, match=r"train\.device is 'abacus', which this torch cannot use"):
        device_of("abacus")
