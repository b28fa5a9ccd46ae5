"""Choosing the export family, and the message when none fits."""

import pytest

from clearformer.config import (
    Biases,
    Classifier,
    Features,
    LayerNorm,
    NextToken,
    RMSNorm,
)
from clearformer.hub.export_family import choose_family


@pytest.mark.parametrize(
    ("family", "changes", "kind"),
    [
        ("gpt2", {}, "gpt2"),
        ("gpt2", {"activation": "squared_relu", "head": NextToken(tied=False)}, "gpt2"),
        ("bert", {}, "bert"),
        ("bert", {"head": Classifier(classes=4, pool="pooler")}, "bert"),
        ("modern", {}, "qwen3"),
        ("modern", {"query_key_norm": None}, "llama"),
        ("modern", {"key_heads": None}, "qwen3"),
        ("original", {"residual": "post"}, "marian"),
    ],
)
def test_chooses_family_for_config(small, family, changes, kind):
    *_, settings = choose_family(small(family, **changes))
    assert settings["model_type"] == kind


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("generator", {}, "residual is pre and not post"),
        ("xl", {}, "position is .* and not RelativeXL"),
        ("sparse", {}, "patterns is Causal and not Both"),
        (
            "gpt2",
            {"head": NextToken(cap=30.0)},
            r"its head is NextToken\(tied=True, cap=None\) and not .*cap=30",
        ),
        (
            "gpt2",
            {"embedding_scale": "sqrt_width"},
            "its embedding_scale is one and not sqrt_width",
        ),
        ("modern", {"query_key_norm": RMSNorm(epsilon=1e-3)}, "query_key_norm"),
        ("modern", {"norm": LayerNorm(), "query_key_norm": None}, "norm is|position is"),
        ("modern", {"biases": Biases()}, "biases is"),
        ("bert", {"head": Classifier(classes=2, pool="mean")}, "head"),
        ("bert", {"head": Features(pool="max")}, "head"),
    ],
)
def test_rejects_models_without_counterpart(small, family, changes, reason):
    with pytest.raises(
        ValueError, match=f"has no counterpart among gpt2, bert, modern.*(?:{reason})"
    ):
        choose_family(small(family, **changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "its residual is post and not pre"),
        ({"residual": "post", "activation": "swiglu"}, "its activation is gelu and not swiglu"),
        ({"residual": "post", "norm": LayerNorm(epsilon=1e-6)}, "its norm is .*epsilon=1e-05"),
        ({"residual": "post", "head": NextToken(tied=False)}, "its head is"),
    ],
)
def test_rejects_translators_without_counterpart(small, changes, reason):
    config = small("original", **{"residual": "pre", **changes})
    with pytest.raises(ValueError, match=f"the nearest is marian, but {reason}"):
        choose_family(config)
