import pytest
import torch

from clearformer.compressor.models import model_hash, opened, weights_size


def test_model_hash_depends_on_every_weight(byte_model):
    model = byte_model()
    first = model_hash(opened(model, None)[0])
    assert first == model_hash(opened(byte_model(), None)[0])
    last = list(model.module.parameters())[-1]
    with torch.no_grad():
        last.view(-1)[0] += 1e-6 + 1e-6 * last.view(-1)[0].abs()
    assert model_hash(opened(model, None)[0]) != first
    assert model_hash(opened(byte_model(heads=2), None)[0]) != first


def test_model_hash_of_int8_differs(byte_model):
    quantized = opened(byte_model().quantize(), None)[0]
    assert model_hash(quantized) == model_hash(opened(byte_model().quantize(), None)[0])
    assert model_hash(quantized) != model_hash(opened(byte_model(), None)[0])
    assert model_hash(quantized) != model_hash(opened(byte_model(seed=2).quantize(), None)[0])


def test_preset_and_seed_determine_weights():
    one, name = opened("modern-tiny", 3)
    assert name == "modern-tiny"
    assert model_hash(one) == model_hash(opened("modern-tiny", 3)[0])
    assert model_hash(one) != model_hash(opened("modern-tiny", 4)[0])


def test_rejects_unsupported_models(byte_model, small):
    with pytest.raises(ValueError, match="there is no model 'modern-tinny'"):
        opened("modern-tinny", 0)
    with pytest.raises(ValueError, match="needs a preset"):
        opened(byte_model(), 0)
    with pytest.raises(ValueError, match=r"bert.* is a masked"):
        opened("bert-tiny", 0)


def test_int8_weights_are_about_a_quarter(byte_model):
    now, in_int8 = weights_size(byte_model().module)
    assert now == 4 * sum(each.numel() for each in byte_model().module.parameters())
    assert now / 4 < in_int8 < now / 2


def test_weights_of_an_int8_model_are_counted(byte_model):
    _, expected = weights_size(byte_model().module)
    now, in_int8 = weights_size(byte_model().quantize().module)
    assert expected <= now == in_int8 < 1.1 * expected
