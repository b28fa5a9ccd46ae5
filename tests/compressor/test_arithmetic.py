import torch

from clearformer.compressor.arithmetic import Native, Portable
from clearformer.compressor.models import opened


def test_native_arithmetic_uses_its_threads(byte_model):
    model, _ = opened(byte_model(), None)
    native = Native(2)
    assert native.prepare(model) is model
    before = torch.get_num_threads()
    with native.running(model):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before
    assert native.machine.torch == torch.__version__


def test_portable_arithmetic_copies_the_model_to_float64(byte_model):
    model, _ = opened(byte_model(), None)
    prepared = Portable().prepare(model)
    assert {each.dtype for each in prepared.module.parameters()} == {torch.float64}
    assert {each.dtype for each in model.module.parameters()} == {torch.float32}
    assert Portable().machine is None
