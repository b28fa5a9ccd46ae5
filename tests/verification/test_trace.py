"""Traces: operations with their names, modules, lines and values."""

import torch
from torch import nn

from clearformer.verification.trace import Recorder, operation_name


class Inner(nn.Module):
    def forward(self, x):
        x = x * 2
        x /= 4
        return torch.softmax(x, dim=-1)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x) + 1


def traced(model, x):
    recorder = Recorder(model)
    with recorder.recording() as trace:
        model(x)
    return trace


def test_operations_have_name_module_and_line():
    trace = traced(Outer(), torch.ones(2, 3))
    assert [op.name for op in trace.ops] == ["mul", "div", "softmax", "add"]
    assert [op.place.module for op in trace.ops] == ["inner", "inner", "inner", ""]
    assert all("test_trace.py:" in op.place.line for op in trace.ops)


def test_records_copies_and_follows_in_place_operations():
    trace = traced(Outer(), torch.ones(2, 3))
    product, quotient, softmax, _ = trace.ops
    assert product.value.equal(torch.full((2, 3), 2.0))
    assert quotient.value.equal(torch.full((2, 3), 0.5))
    assert trace.producer(softmax.args[0], softmax.index) is quotient
    assert trace.users(softmax)[0].name == "add"


def test_traces_torch_multihead_attention():
    model = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    recorder = Recorder(model)
    x = torch.randn(2, 5, 8)
    with recorder.recording() as trace, torch.no_grad():
        plain = model(x, x, x, need_weights=False)[0]
    assert trace.named("scaled_dot_product_attention")
    with torch.no_grad():
        torch.testing.assert_close(plain, model(x, x, x, need_weights=False)[0])


def test_operation_name_of_variants():
    names = [torch.Tensor.__itruediv__, torch.Tensor.div_, torch.true_divide]
    assert {operation_name(each) for each in names} == {"div"}


def test_error_leaves_no_hooks():
    class Fails(nn.Module):
        def forward(self, x):
            raise RuntimeError("no")

    recorder = Recorder(Fails())
    try:
        with recorder.recording():
            Fails()(torch.ones(1))
    except RuntimeError:
        pass
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not torch.nn.modules.module._global_forward_hooks
