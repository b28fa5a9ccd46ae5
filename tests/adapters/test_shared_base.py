import pytest
import torch

import clearformer as cf
from clearformer.adapters.attach import attach, merge
from clearformer.adapters.shared_base import SharedLinear, with_adapter
from clearformer.inference.packed_linear import PackedLinear, pack


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", [cf.LoRA, cf.DoRA])
@pytest.mark.parametrize("family", ["gpt2", "modern", "xl"])
def test_logits_are_those_of_the_merged_model(model_of, drawn, family, kind, packed):
    adapted = drawn(attach(model_of(family), kind(rank=2), seed=0).eval())
    base, tokens = model_of(family), torch.randint(0, 13, (2, 6))
    plain = base(tokens)
    if packed:
        pack(base, 4)
    shared = with_adapter(base, adapted)
    if packed:
        pack(shared, 4)
    with torch.inference_mode():
        found = shared(tokens)
        assert torch.allclose(found, merge(adapted)(tokens), atol=1e-5)
        assert torch.allclose(base(tokens), plain, atol=1e-5)
    assert not torch.allclose(found, plain, atol=1e-3)


def test_every_matrix_is_shared(model_of, drawn):
    base = pack(model_of("modern"), 4)
    adapted = drawn(attach(model_of("modern"), cf.LoRA(rank=2), seed=0))
    shared = with_adapter(base, adapted)
    ours = {id(module) for module in base.modules() if isinstance(module, PackedLinear)}
    layers = [module for module in shared.modules() if isinstance(module, SharedLinear)]
    assert {id(layer.base) for layer in layers} <= ours
    assert shared.embedding.token is base.embedding.token
    own = sum(m.weight.nbytes for layer in layers for m in (layer.up, layer.down))
    assert own < 4 * sum(p.numel() for p in model_of("modern").parameters())
