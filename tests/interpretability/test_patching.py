"""Patching grids: equal to one plain pass for each cell."""

import pytest
import torch

from clearformer.interpretability import patch

CLEAN = torch.tensor([5, 17, 3, 9, 17, 3, 11])
CORRUPTED = torch.tensor([5, 17, 8, 9, 17, 2, 11])


@pytest.mark.parametrize(
    ("by", "stage"),
    [("position", "resid_pre"), ("position", "attn_out"), ("position", "mlp_out"),
     ("head", "head_out")],
)  # fmt: skip
def test_equals_plain_torch(gpt2, plain, by, stage):
    seen = {}

    def keep(each, layer, x):
        seen[each, layer] = x
        return x

    def difference(tokens, change):
        logits = plain(gpt2, tokens, change)
        return float((logits[-1, 4] - logits[-1, 7]).detach())

    clean = difference(CLEAN, keep)
    found = patch(gpt2, CLEAN, CORRUPTED, right=4, wrong=7, by=by, stage=stage)
    assert found.clean == pytest.approx(clean, abs=1e-4)
    assert found.values.shape == ((3, 7) if by == "position" else (3, 4))
    for layer, row in enumerate(found.values.tolist()):
        for place, value in enumerate(row):

            def put(each, number, x, layer=layer, place=place):
                if (each, number) == (stage, layer):
                    x = x.clone()
                    x[place] = seen[stage, layer][place]
                return x

            assert value == pytest.approx(difference(CORRUPTED, put), abs=1e-4)
    torch.testing.assert_close(
        found.recovered, (found.values - found.corrupted) / (found.clean - found.corrupted)
    )


def test_patching_the_changed_tokens_at_the_bottom_restores_all(gpt2):
    found = patch(gpt2, CLEAN, torch.tensor([5, 17, 8, 9, 17, 3, 11]), right=4, wrong=7)
    assert float(found.recovered[0, 2]) == pytest.approx(1, abs=1e-3)
    assert found.tokens[2] == "8"


def test_of_a_memory_only_the_last_segment_is_patched(writer):
    """The recorded values and the shown tokens are of the last segment."""
    model = writer("xl", length=4, vocabulary=20)
    clean = torch.tensor([5, 17, 3, 9, 17, 3, 11, 6, 4, 8])
    corrupted = clean.clone()
    corrupted[2] = 7
    found = patch(model, clean, corrupted, right=4, wrong=7)
    assert found.values.shape[1] == 2
    # Both texts end alike: what enters the first layer is the same there.
    torch.testing.assert_close(found.values[0], torch.full((2,), found.corrupted))
    assert (found.values[1] - found.corrupted).abs().max() > 1e-4
    assert abs(found.clean - found.corrupted) > 1e-3


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"by": "layer"}, "by is 'layer', but it must be position or head"),
        ({"stage": "weights"}, "stage is 'weights', but by position it must be resid_pre"),
        ({"stage": "mlp_out", "by": "head"}, "stage is 'mlp_out', but by head it must be"),
        ({"corrupted": CLEAN[:4]}, "the clean text has 7 tokens and the corrupted one 4"),
    ],
)
def test_messages(gpt2, changes, sentence):
    corrupted = changes.pop("corrupted", CORRUPTED)
    with pytest.raises(ValueError, match=sentence):
        patch(gpt2, CLEAN, corrupted, right=4, wrong=7, **changes)
