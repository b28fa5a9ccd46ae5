"""Arithmetic: scale, softmax, heads, projections, residuals, norms."""

import pytest
from torch import nn

from clearformer.verification.checks import arithmetic as checks
from clearformer.verification.probe import Probe


def names(findings):
    return [each.name for each in findings]


SCALE = "* (1.0 / math.sqrt(k.size(-1)))"


@pytest.mark.parametrize(
    ("new", "name"),
    [
        ("", "scale-missing"),
        ("* (1.0 / math.sqrt(C))", "scale-by-model-width"),
        ("* (1.0 / k.size(-1))", "scale-applied-twice"),
        ("* math.sqrt(k.size(-1))", "scale-inverted"),
    ],
)
def test_finds_wrong_scale(probe, new, name):
    (found,) = checks.scale(probe("gpt", SCALE, new))
    assert found.name == name
    assert "entropy" in found.sentence
    assert found.place.module == "blocks.0.attn"


def test_correct_models_give_no_finding(probe):
    for source in ("gpt", "rotary", "encoder", "seed_second", "translator"):
        made = probe(source)
        for check in (
            checks.scale,
            checks.softmax_direction,
            checks.heads_by_view,
            checks.residuals,
            checks.shared_projections,
            checks.norm_over_time,
            checks.tied_weights,
        ):
            assert names(check(made)) == []


def test_finding_names_the_reshape(probe):
    made = probe(
        "gpt", "y = y.transpose(1, 2).contiguous().view(B, T, C)", "y = y.reshape(B, T, C)"
    )
    (found,) = checks.heads_by_view(made)
    assert "reshape from (3, 4, 7, 8) to (3, 7, 32)" in found.sentence


def test_missing_output_projection_is_information(probe):
    made = probe("seed", "return self.unifyheads(out)", "return out")
    assert names(checks.output_projection(made)) == ["output-projection-missing"]


def test_finds_gelu_that_differs_from_config():
    class Feed(nn.Module):
        def __init__(self, approximate):
            super().__init__()
            self.config = type("C", (), {"to_dict": lambda self: {"hidden_act": "gelu_new"}})()
            self.act, self.out = nn.GELU(approximate), nn.Linear(8, 8)

        def forward(self, x):
            return self.out(self.act(x))

    assert names(checks.gelu_variant(Probe(Feed("none")))) == ["gelu-variant"]
    assert names(checks.gelu_variant(Probe(Feed("tanh")))) == []


def test_common_block_of_path():
    assert checks.common_block("model.layers.3.attn.o") == "model.layers.3"
    assert checks.common_block("head") == ""
