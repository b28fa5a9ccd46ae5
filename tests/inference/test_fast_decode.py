"""Fast one-token decoding equals decoding through the modules for every supported model."""

import pytest
import torch

from clearformer import config as c
from clearformer.builder import build
from clearformer.core.kernels import explicit
from clearformer.inference import fast_decode
from clearformer.inference.caches import inference_caches
from clearformer.inference.fast_decode import FastDecoder, norm_function, supports
from clearformer.inference.int8 import quantize
from clearformer.inference.packed_linear import pack, use_fast_products

STRIDED = c.Causal() & c.Strided(stride=2)
CHANGES = {
    "generator": ("generator", {}),
    "gpt2": ("gpt2", {}),
    "modern": ("modern", {}),
    "sparse": ("sparse", {}),
    "alibi": ("gpt2", {"position": c.ALiBi()}),
    "rotary": ("generator", {"position": c.Rotary(base=500.0)}),
    "sines": ("gpt2", {"position": c.Sinusoidal(), "embedding_scale": "sqrt_width"}),
    "squared": ("gpt2", {"activation": "squared_relu", "position": c.NoPosition()}),
    "strided": ("modern", {"position": c.ALiBi(), "patterns": (STRIDED,)}),
}
ATTENTION_MASK = torch.arange(9) >= torch.tensor([[2], [0], [4]])


@pytest.mark.parametrize(
    "arrange", [lambda m: m, use_fast_products, lambda m: pack(m, 3), quantize]
)
@pytest.mark.parametrize("attention_mask", [None, ATTENTION_MASK], ids=["whole", "padded"])
@pytest.mark.parametrize("name", CHANGES)
@torch.inference_mode()
def test_fast_decoder_matches_modules(name, attention_mask, arrange, small, scrambled):
    family, changes = CHANGES[name]
    config = small(family, **changes)
    model = arrange(scrambled(build(config)).eval())
    tokens = torch.randint(13, (3, 9))
    plain, flat = inference_caches(config, 3, 9), inference_caches(config, 3, 9)
    assert supports(model, flat)
    step = FastDecoder(model, flat)
    for memory in (plain, flat):
        model.hidden(
            tokens[:, :5], None if attention_mask is None else attention_mask[:, :5], caches=memory
        )
        for cache in memory:
            cache.advance()
    for place in range(5, 9):
        own = None if attention_mask is None else attention_mask[:, : place + 1]
        token = tokens[:, place : place + 1]
        expected = model.head(model.hidden(token, own, caches=plain))[:, 0]
        found = step(token[:, 0], own)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        for cache in (*plain, *flat):
            cache.advance()
    for one, other in zip(plain, flat, strict=True):
        torch.testing.assert_close(one.keys, other.keys, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_rotations_beyond_first_table(small, scrambled, monkeypatch):
    monkeypatch.setattr(fast_decode, "POSITIONS", 3)
    config = small("modern")
    model = scrambled(build(config)).eval()
    tokens = torch.randint(13, (1, 9))
    caches = inference_caches(config, 1, 9)
    step = FastDecoder(model, caches)
    for place in (*range(9), 5):  # the last one again, after a rollback
        for cache in caches:
            cache.forget(cache.length - place)
        found = step(tokens[:, place], None)
        expected = model(tokens[:, : place + 1])[:, -1]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        for cache in caches:
            cache.advance()


@pytest.mark.parametrize("epsilon", [None, 1e-5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_rms_norm_matches_torch(epsilon, dtype):
    norm = torch.nn.RMSNorm(40, eps=epsilon).to(dtype)
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(4, 40).mul(torch.tensor([[0.0], [1e-5], [1.0], [1e3]])).to(dtype)
    with torch.inference_mode():
        torch.testing.assert_close(norm_function(norm)(x), norm(x))


def test_supports_rejects_unknown_models(small):
    config = small("xl")
    assert not supports(build(config).eval(), inference_caches(config, 1, 5))
    config = small("gpt2", position=c.RelativeXL())
    assert not supports(build(config).eval(), inference_caches(config, 1, 5))
    config = small("gpt2")
    model = build(config).eval()
    assert supports(model, inference_caches(config, 1, 5))
    assert not supports(model.train(), inference_caches(config, 1, 5))
    model.eval().stack.blocks[1].attention.kernel = explicit
    assert not supports(model, inference_caches(config, 1, 5))


@pytest.mark.parametrize("name", CHANGES)
@torch.inference_mode()
def test_fast_decoder_matches_modules_in_float64(name, small, scrambled):
    family, changes = CHANGES[name]
    config = small(family, **changes)
    model = scrambled(build(config).double()).eval()
    tokens = torch.randint(13, (3, 9))
    plain, flat = (inference_caches(config, 3, 9, torch.float64) for _ in range(2))
    step = FastDecoder(model, flat)
    for place in range(9):
        own, token = ATTENTION_MASK[:, : place + 1], tokens[:, place]
        expected = model(token[:, None], own, caches=plain)[:, 0]
        torch.testing.assert_close(step(token, own), expected, atol=1e-12, rtol=0)
        for cache in (*plain, *flat):
            cache.advance()


@pytest.mark.parametrize("position", [c.NoPosition(), c.ALiBi(), c.Rotary()])
@torch.inference_mode()
def test_fully_masked_token_stays_finite(position, small, scrambled):
    """As with modules: attention gives zeros, and the rest of the block is computed."""
    blind = c.Causal() & c.Region(queries=(0, 3), keys=(0, None))
    config = small("gpt2", position=position, patterns=(blind,))
    model = scrambled(build(config)).eval()
    tokens = torch.randint(13, (2, 6))
    memory = inference_caches(config, 2, 6)
    assert supports(model, memory)
    step, found = FastDecoder(model, memory), []
    for token in tokens.T:
        found.append(step(token, None))
        for cache in memory:
            cache.advance()
    given = torch.stack(found, dim=1)
    assert given.isfinite().all()
    torch.testing.assert_close(given, model(tokens), atol=1e-5, rtol=1e-5)
