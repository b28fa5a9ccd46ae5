"""Direct logit attribution: the parts sum to the logit difference, and each is the plain one."""

import pytest
import torch

from clearformer.builder import build
from clearformer.explore.trace import trace
from clearformer.inference.int8 import quantize
from clearformer.interpretability import direct_logit_attribution
from clearformer.interventions import edit, head, norm, point, residual

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


def test_inside_an_edit_sums_to_the_edited_logits(gpt2):
    other = trace(gpt2, TOKENS.flip(0))
    for changes in (
        {"steer": {residual(1): torch.linspace(-1, 1, 32)}},
        {"freeze": {norm(): other}},
        {"scale": {point("attn_out", 2): 0.5}},
        {"zero": head(1, 3)},
    ):
        with edit(gpt2, **changes), torch.no_grad():
            found = direct_logit_attribution(gpt2, TOKENS, 4, 7)
            logits = gpt2(TOKENS[None])[0, -1]
        assert found.total == pytest.approx(float(logits[4] - logits[7]), abs=1e-4)
        assert sum(row["value"] for row in found.rows()) == pytest.approx(found.total, abs=1e-4)
        assert (abs(found.edits) > 1e-2) == ("steer" in changes or "scale" in changes)
    assert direct_logit_attribution(gpt2, TOKENS, 4, 7).edits == 0


def test_rounded_output_matrices_are_refused(of_family):
    model = quantize(of_family("gpt2").module)
    with pytest.raises(ValueError, match="has one as Int8Linear: load the run that it was made"):
        direct_logit_attribution(model, TOKENS % 13, 4)


@pytest.mark.parametrize("family", ["bert", "generator", "classifier"])
def test_models_without_a_linear_output_are_refused(family, small):
    model = build(small(family)).eval()
    post = family != "generator" or small("generator").residual == "post"
    if not post:
        pytest.skip("this family is pre-norm")
    with pytest.raises(ValueError, match="needs a model whose logits are linear"):
        direct_logit_attribution(model, TOKENS % 13, 1, 0)
