"""Cross-attention as an alignment: rows are target tokens, columns source tokens."""

import pytest
import torch

from clearformer import config as c
from clearformer.builder import build
from clearformer.explore.alignment import alignment
from clearformer.explore.trace import trace
from clearformer.generate.translate import Translator
from clearformer.text import train


@pytest.fixture
def translator(small, scrambled):
    tokenizer = train("characters", ["abcdefgh "])
    generation = c.GenerationDefaults(end_ids=(tokenizer.size,), start_id=tokenizer.size + 1)
    config = small("original", vocabulary=tokenizer.size + 2, length=20)
    return Translator(scrambled(build(config)), config, generation, tokenizer)


def test_alignment_weights_and_labels(translator):
    source = translator.encode(["abc"])[0]
    target = translator.tokenizer.encode("he").tolist()
    weights, rows, columns = alignment(translator, source, target)
    assert rows == ["h", "e", "(end)"]
    assert columns == ["a", "b", "c", "(end)"]
    assert weights.shape == (3, 4)
    torch.testing.assert_close(weights.sum(1), torch.ones(3))


def test_layers_and_heads_are_averaged_or_chosen(translator):
    source = translator.encode(["abc"])[0]
    target = translator.tokenizer.encode("he").tolist()
    each = torch.stack(
        [
            torch.stack(
                [alignment(translator, source, target, layer, head)[0] for head in range(4)]
            )
            for layer in range(2)
        ]
    )
    torch.testing.assert_close(alignment(translator, source, target)[0], each.mean((0, 1)))
    torch.testing.assert_close(alignment(translator, source, target, layer=1)[0], each[1].mean(0))
    torch.testing.assert_close(alignment(translator, source, target, head=2)[0], each[:, 2].mean(0))
    start = translator.generation.start_id
    found = trace(translator.model, (source, [start, *target]))
    assert found.get("weights", 1, 2, "cross").equal(each[1, 2])


def test_rejects_invalid_layer_or_head(translator):
    with pytest.raises(ValueError, match="layer is 2, but original-base has layers 0 to 1"):
        alignment(translator, [1, 2], [3], layer=2)
    with pytest.raises(ValueError, match="head is -1, but original-base has heads 0 to 3"):
        alignment(translator, [1, 2], [3], head=-1)
