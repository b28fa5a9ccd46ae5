"""Encoding text for each kind of model."""

import pytest
import torch

from clearformer.explore.traced_model import (
    as_traced_model,
    encode,
    encode_input,
    encode_source,
    encode_target,
)


def test_encode_for_each_kind_of_model(loaded):
    bert = loaded("bert").model
    pieces = bert.pieces(encode(bert, "the [MASK] sat"))
    assert pieces == ["[CLS]", "the", "[MASK]", "sat", "[SEP]"]
    gpt2 = loaded("gpt2").model
    assert gpt2.tokenizer.decode(encode(gpt2, "the cat")) == "the cat"
    original = loaded("original").model
    start_id, end_id = original.generation.target_ids
    assert encode_source(original, " the cat ")[-1] == end_id
    assert encode_target(original, "the cat")[0] == start_id
    given = encode_input(original, ("the cat", "a dog"))
    assert given.keys("cross") == encode_source(original, "the cat")
    assert given.queries("cross") == encode_target(original, "a dog") == given.keys("decoder")


def test_two_sentences_get_segments(loaded):
    bert = loaded("bert").model
    given = encode_input(bert, "the cat [SEP] the dog")
    assert given.segments.tolist() == [[0, 0, 0, 0, 1, 1, 1]]
    assert encode_input(bert, "the cat").segments is None


def test_input_of_memory_model_is_last_segment_with_memory(loaded):
    given = encode_input(
        loaded("xl").model, "the cat sat on the mat"
    )  # 22 characters, segments of 8
    assert (given.start, given.remembered) == (16, 8)
    assert len(given.queries("self")) == 6
    assert len(given.keys("self")) == 14


def test_as_traced_model_accepts_modules_and_wrappers(loaded):
    model = loaded("gpt2").model
    assert as_traced_model(model) is model
    assert as_traced_model(model.module).tokenizer is None
    with pytest.raises(ValueError, match="str is not a model and has none"):
        as_traced_model("gpt2")


def test_rejects_invalid_inputs(loaded):
    gpt2 = loaded("gpt2").model
    with pytest.raises(ValueError, match="the prompt is empty"):
        encode_input(gpt2, "")
    with pytest.raises(ValueError, match=r"tokens have shape \(1, 0\)"):
        encode_input(gpt2, torch.zeros(1, 0))
    with pytest.raises(ValueError, match="segment is 0 and memory 3"):
        encode_input(gpt2, [1], segment=0, memory=3)
