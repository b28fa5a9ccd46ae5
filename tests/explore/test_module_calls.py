"""The last call of a module is recorded, and the hooks are removed."""

import pytest
import torch
from torch import nn

from clearformer.explore.module_calls import last_calls


def test_records_last_call_and_removes_hooks():
    layer = nn.Linear(2, 2)
    with last_calls({"it": layer}) as calls:
        layer(torch.zeros(1, 2))
        output = layer(torch.ones(1, 2))
    assert calls.inputs["it"].equal(torch.ones(1, 2))
    assert calls.outputs["it"].equal(output)
    assert not layer._forward_hooks


def test_hooks_are_removed_after_error():
    layer = nn.Linear(2, 2)
    with pytest.raises(RuntimeError), last_calls({"it": layer}):
        layer(torch.zeros(1, 3))
    assert not layer._forward_hooks
