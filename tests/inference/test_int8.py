"""Int8 weights: close to the original model, and saved and loaded exactly."""

import pytest
import torch
from torch import nn

from clearformer.builder import build, caches
from clearformer.core.embedding import Embedding
from clearformer.families import FAMILIES
from clearformer.inference import int8
from clearformer.inference.int8 import (
    Int8Embedding,
    Int8Linear,
    int8_tensors,
    load_int8,
    quantize,
    rounded,
)

GENERATORS = ["generator", "gpt2", "modern", "sparse", "xl"]


def test_rounds_to_nearest_with_scale_per_row():
    weight = torch.randn(5, 40)
    weight[3] = 0
    numbers, scale = rounded(weight)
    assert numbers.dtype == torch.int8
    error = (weight - numbers * scale[:, None]).abs()
    assert (error <= scale[:, None] / 2 + 1e-7).all()
    assert numbers[:3].abs().amax(dim=1).tolist() == [127] * 3


def test_int8_linear_is_close_to_float_linear():
    linear = nn.Linear(64, 48)
    ours = Int8Linear(rounded(linear.weight), linear.bias)
    x = torch.randn(3, 5, 64)
    expected = linear(x)
    assert (ours(x) - expected).abs().max() < 0.03 * expected.abs().max()
    assert (ours.weight - linear.weight).abs().max() < 0.01 * linear.weight.abs().max()
    assert ours(x.bfloat16()).dtype == torch.bfloat16


def test_result_of_row_does_not_depend_on_other_rows():
    linear = nn.Linear(64, 48)
    ours = Int8Linear(rounded(linear.weight), linear.bias)
    x = torch.randn(7, 64) * torch.logspace(-2, 2, 7)[:, None]  # neighbours of every size
    x[3] = 0.25  # a constant row
    x[4] = 0
    together = ours(x)
    # Not bitwise: a single row is quantized by torch itself, with the same integers.
    alone = torch.cat([ours(row) for row in x.split(1)])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5 * float(x.abs().max()))
    assert ((together - alone).abs().amax(1) <= 1e-5 * x.abs().amax(1) + 1e-7).all()
    assert together.view(7, 1, 48).equal(ours(x[:, None]))
    error = (together - linear(x)).abs().amax(dim=1)
    assert (error < 0.03 * x.abs().amax(dim=1) + 1e-6).all()
    torch.testing.assert_close(together[4], linear.bias)


def test_product_is_forward_for_any_number_of_rows():
    linear = nn.Linear(64, 48)
    ours = Int8Linear(rounded(linear.weight), linear.bias)
    for x in (torch.randn(1, 64), torch.randn(3, 64)):
        for rows in (1, 3):
            assert ours.product(rows)(x).equal(ours(x))


def test_falls_back_to_dequantized_weight_without_kernel(monkeypatch):
    linear = nn.Linear(64, 48)
    x = torch.randn(3, 64)
    packed = Int8Linear(rounded(linear.weight), linear.bias)
    monkeypatch.setattr("clearformer.inference.int8._pack", lambda rows: None)
    plain = Int8Linear(rounded(linear.weight), linear.bias)
    assert plain.packed is None
    torch.testing.assert_close(plain(x), nn.functional.linear(x, packed.weight, linear.bias))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_close_to_its_float_model(family, small, scrambled, example, logits):
    config = small(family)
    model = scrambled(build(config)).eval()
    batch = example(config)
    with torch.inference_mode():
        expected = logits(model, batch)
        found = logits(quantize(model), batch)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() < 0.1 * other.abs().max()
    left = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert len(left) == (config.layers if family == "xl" else 0)  # the projected distances


@pytest.mark.parametrize("family", GENERATORS)
def test_save_and_load_round_trip(family, small):
    config = small(family)
    model = quantize(build(config, seed=1)).eval()
    tensors = int8_tensors(model)
    assert all(type(tensor) is torch.Tensor for tensor in tensors.values())
    again = load_int8(build(config, seed=2), tensors).eval()
    tokens = torch.randint(13, (2, 8))
    with torch.inference_mode():
        assert again(tokens).equal(model(tokens))
    assert sum(t.dtype == torch.int8 for t in tensors.values()) >= 4 * config.layers


def test_tied_weights_are_quantized_identically(small):
    model = quantize(build(small("gpt2")))
    assert isinstance(model.embedding.token, Int8Embedding)
    assert model.embedding.token.numbers.equal(model.head.project.rows()[0])


def test_decodes_with_cache(small):
    config = small("modern")
    model = quantize(build(config)).eval()
    tokens = torch.randint(13, (1, 6))
    with torch.inference_mode():
        memory = caches(config)
        for token in tokens.split(1, dim=1):
            logits = model(token, caches=memory)
            for cache in memory:
                cache.advance()
        # Inputs are quantized in each call, so a single step is close but not equal.
        assert (logits[0, -1] - model(tokens)[0, -1]).abs().max() < 0.1


def test_rejects_tensors_of_other_model(small):
    tensors = int8_tensors(quantize(build(small("gpt2"))))
    with pytest.raises(ValueError, match=r"is missing from the int8 weights, or has another shape"):
        load_int8(build(small("gpt2", hidden=28)), tensors)


@pytest.mark.parametrize("family", GENERATORS)
def test_result_of_sequence_does_not_depend_on_batch(family, small, scrambled):
    config = small(family)
    model = quantize(scrambled(build(config))).eval()
    tokens = torch.randint(13, (3, 8))
    with torch.inference_mode():
        together = model(tokens)
        alone = torch.cat([model(row) for row in tokens.split(1)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("wrong", [-1, 5])
def test_int8_embedding_rejects_ids_outside_vocabulary(wrong):
    """An index of -1 would be the last row."""
    model = nn.Module()
    model.token = nn.Embedding(5, 4)
    embedding = Embedding(nn.Embedding(5, 4), 5)
    embedding.token = quantize(model).token
    message = rf"^token id {wrong} is outside the vocabulary of 5 \(0 to 4\)"
    with pytest.raises(ValueError, match=message):
        embedding(torch.tensor([[wrong]]))


def test_packed_matrices_are_moved_to_huge_pages(small, monkeypatch):
    sizes = []
    monkeypatch.setattr(int8, "collapse", sizes.append)
    config = small("gpt2")
    model = quantize(build(config).eval())
    load_int8(build(config).eval(), int8_tensors(model))
    matrices = [each for each in model.modules() if isinstance(each, Int8Linear)]
    assert sizes == [sum(each.weight.numel() for each in matrices)] * 2
