"""A text as each kind of model reads it."""

import pytest
import torch

from clearformer.explore.subject import as_subject, ids, read, source_ids, target_ids


def test_each_kind_of_model_reads_in_its_own_way(opened):
    bert = opened("bert").subject
    pieces = bert.pieces(ids(bert, "the [MASK] sat"))
    assert pieces == ["[CLS]", "the", "[MASK]", "sat", "[SEP]"]
    gpt2 = opened("gpt2").subject
    assert gpt2.tokenizer.decode(ids(gpt2, "the cat")) == "the cat"
    original = opened("original").subject
    marks = original.config.marks
    assert source_ids(original, " the cat ")[-1] == marks.end
    assert target_ids(original, "the cat")[0] == marks.start
    given = read(original, ("the cat", "a dog"))
    assert given.keys("cross") == source_ids(original, "the cat")
    assert given.queries("cross") == target_ids(original, "a dog") == given.keys("decoder")


def test_two_sentences_are_told_apart(opened):
    bert = opened("bert").subject
    given = read(bert, "the cat [SEP] the dog")
    assert given.segments.tolist() == [[0, 0, 0, 0, 1, 1, 1]]
    assert read(bert, "the cat").segments is None


def test_a_memory_is_behind_the_last_segment(opened):
    given = read(opened("xl").subject, "the cat sat on the mat")  # 22 characters, segments of 8
    assert (given.start, given.remembered) == (16, 8)
    assert len(given.queries("self")) == 6
    assert len(given.keys("self")) == 14


def test_what_has_a_model_is_a_subject(opened):
    subject = opened("gpt2").subject
    assert as_subject(subject) is subject
    assert as_subject(subject.model).tokenizer is None
    with pytest.raises(ValueError, match="str is no model and has none"):
        as_subject("gpt2")


def test_what_cannot_be_read_is_said(opened):
    gpt2 = opened("gpt2").subject
    with pytest.raises(ValueError, match="the prompt is empty"):
        read(gpt2, "")
    with pytest.raises(ValueError, match=r"tokens have shape \(1, 0\)"):
        read(gpt2, torch.zeros(1, 0))
    with pytest.raises(ValueError, match="segment is 0 and memory 3"):
        read(gpt2, [1], segment=0, memory=3)
