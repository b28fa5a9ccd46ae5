"""Direct logit attribution: the parts sum to the logit difference, and each is the plain one."""

import pytest
import torch

from clearformer.builder import build
from clearformer.interpretability import direct_logit_attribution

TOKENS = torch.tensor([5, 17, 3, 9, 17, 3, 11])


@pytest.mark.parametrize("family", ["gpt2", "modern"])
@pytest.mark.parametrize("wrong", [None, 7])
def test_sums_to_the_logit_difference(family, wrong, of_family):
    module = of_family(family).module
    found = direct_logit_attribution(module, TOKENS % 13, 4, wrong)
    parts = found.embedding + float(found.heads.sum() + found.mlps.sum()) + found.biases
    assert parts == pytest.approx(found.total, abs=1e-4)
    logits = module(TOKENS[None] % 13)[0, -1]
    if module.head.cap is not None:  # before it
        logits = module.head.cap * torch.atanh(logits / module.head.cap)
    expected = logits[4] - (0 if wrong is None else logits[wrong])
    assert found.total == pytest.approx(float(expected.detach()), abs=1e-4)


def test_a_head_equals_plain_torch(gpt2, plain):
    seen = {}

    def keep(stage, layer, x):
        seen[stage, layer] = x.detach()
        return x

    plain(gpt2, TOKENS, keep)
    p = dict(gpt2.named_parameters())
    final, norm = seen["resid_post", 2][-1], "stack.norm.weight"
    scale = ((final - final.mean()).pow(2).mean() + 1e-5).sqrt()
    rows = p["embedding.token.weight"]
    direction = p[norm] * (rows[4] - rows[7]) / scale
    out = seen["head_out", 1][3, -1] @ p["stack.blocks.1.attention.output.weight"][:, 24:32].T
    found = direct_logit_attribution(gpt2, TOKENS, 4, 7)
    expected = (out - out.mean()) @ direction
    assert float(found.heads[1, 3]) == pytest.approx(float(expected.detach()), abs=1e-5)
    assert found.rows()[0]["component"] in ("embedding", "head", "mlp", "biases")
    assert len(found.rows()) == 2 + 12 + 3


@pytest.mark.parametrize("family", ["bert", "generator", "classifier"])
def test_models_without_a_linear_output_are_refused(family, small):
    model = build(small(family)).eval()
    post = family != "generator" or small("generator").residual == "post"
    if not post:
        pytest.skip("this family is pre-norm")
    with pytest.raises(ValueError, match="needs a model whose logits are linear"):
        direct_logit_attribution(model, TOKENS % 13, 1, 0)
