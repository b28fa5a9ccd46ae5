"""Recording: temporary changes to a model are always reverted."""

import pytest
import torch

from clearformer.builder import build
from clearformer.explore.recording import Recorder, attentions, blocks, recording
from clearformer.families import FAMILIES


def hooks(model):
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()
    )


@pytest.mark.parametrize("family", list(FAMILIES))
def test_model_is_restored_after_error(family, small):
    model = build(small(family))
    before = {name: vars(module).copy() for name, module in model.named_modules()}
    kernels = [attention.kernel for attention in attentions(model).values()]

    def interrupted():
        with recording(model, Recorder(("weights",)), "none", positions=False):
            assert hooks(model) > 0
            assert attentions(model).popitem()[1].kernel not in kernels
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        interrupted()
    assert hooks(model) == 0
    assert [attention.kernel for attention in attentions(model).values()] == kernels
    for name, module in model.named_modules():
        assert vars(module) == before[name], name


def test_records_only_requested_stages(small):
    model = build(small("gpt2")).eval()
    notes = Recorder(("thumbs",), layers=[1])
    with torch.inference_mode(), recording(model, notes, "model", positions=True):
        model(torch.arange(5)[None])
    assert {place: list(found) for place, found in notes.recorded.items()} == {
        ("self", 1): ["thumbs"]
    }
    assert notes.shapes["self", 1]["weights"] == (4, 5, 5)


def test_blocks_and_attentions_by_part(small):
    model = build(small("original"))
    assert [(part, layer) for part, layer, _ in blocks(model)] == [
        ("encoder", 0), ("encoder", 1), ("decoder", 0), ("decoder", 1),
    ]  # fmt: skip
    assert ("cross", 1) in attentions(model)
