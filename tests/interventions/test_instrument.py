"""The instrument: every stage is visited in order, nested listeners too, and all is removed."""

import pytest
import torch

from clearformer.builder import build
from clearformer.families import FAMILIES
from clearformer.interventions.instrument import Listener, blocks, listening
from clearformer.interventions.points import AXES


class Heard(Listener):
    def __init__(self):
        self.sites = []

    def visit(self, site, x, span):
        self.sites.append((site, tuple(x.shape)))
        return x


def test_visits_every_stage_in_order(gpt2):
    heard = Heard()
    with listening(gpt2, heard):
        gpt2(torch.arange(5)[None])
    stages = [site.stage for site, _ in heard.sites if site.layer == 2]
    assert stages[0] == "resid_pre"
    assert stages[-2:] == ["resid_post", "final_norm_scale"]
    assert stages.index("q") < stages.index("weights") < stages.index("attn_out")
    assert set(stages) == AXES.keys() - {"bias"}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_shapes_are_those_of_the_axes(family, small, example, logits):
    config = small(family)
    model = build(config).eval()
    heard = Heard()
    with listening(model, heard), torch.no_grad():
        logits(model, example(config, size=2, length=8))
    sizes = {"H": config.heads, "E": config.width, "1": 1}
    for site, shape in heard.sites:
        axes = AXES[site.stage].split(",")
        assert len(shape) == 1 + len(axes), site
        for axis, size in zip(axes, shape[1:], strict=True):
            assert size == sizes.get(axis, size), (site, shape)


def test_nested_listeners_share_one_instrument(gpt2):
    outer, inner = Heard(), Heard()
    with listening(gpt2, outer):
        with listening(gpt2, inner):
            gpt2(torch.arange(3)[None])
        assert [block.residual.__name__ for _, _, block in blocks(gpt2)] == ["residual"] * 3
        gpt2(torch.arange(3)[None])
    assert outer.sites == inner.sites * 2
    assert all(block.residual.__name__ == "pre_norm" for _, _, block in blocks(gpt2))
