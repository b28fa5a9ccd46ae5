"""Claims: what a model's names and flags state about it."""

import pytest
import torch
from torch import nn

from clearformer.verification.claims import claim_of, is_triangle


def named(name, **attributes):
    model = type(name, (nn.Module,), {})()
    for key, value in attributes.items():
        setattr(model, key, value)
    return model


@pytest.mark.parametrize(
    ("model", "causal"),
    [
        (named("TinyGPT"), True),
        (named("CausalSelfAttention"), True),
        (named("BertForMaskedLM"), False),
        (named("TextEncoder"), False),
        (named("SelfAttention"), None),
        (named("SelfAttention", mask=True), True),
        (named("SelfAttention", causal=False), None),
    ],
)
def test_claim_from_names_and_flags(model, causal):
    claim = claim_of(model, None, None)
    assert claim.causal is causal
    assert claim.reason


def test_explicit_claim_overrides_names():
    assert claim_of(named("TinyGPT"), None, "encoder").causal is False
    assert claim_of(named("TextEncoder"), None, "causal-lm").causal is True


def test_triangular_buffer_claims_causality():
    model = named("Thing")
    model.register_buffer("tri", torch.ones(8, 8).tril())
    assert claim_of(model, None, None).causal is True


def test_claim_reads_window_and_stride():
    assert claim_of(named("Thing", sliding_window=6), None, None).window == 6
    assert claim_of(named("Thing", stride=4), None, None).sparse == "stride is set"


def test_is_triangle():
    ones = torch.ones(4, 4)
    assert is_triangle(ones.tril().bool())
    assert is_triangle(ones.triu(1).bool())
    assert is_triangle(torch.full((4, 4), -torch.inf).triu(1))
    assert not is_triangle(ones.triu(2).bool())
    assert not is_triangle(ones)


@pytest.mark.parametrize(
    ("name", "causal"),
    [("RunningSumLM", True), ("BertForMaskedLM", False), ("TinyMLM", False), ("DatasetGPT", True)],
)
def test_names_are_read_by_their_words(name, causal):
    model = type(name, (nn.Module,), {})()
    assert claim_of(model, None, None).causal is causal


def test_a_prefix_is_claimed_by_a_setting():
    model = type("PrefixLM", (nn.Module,), {})()
    assert claim_of(model, None, None).causal is None
    model.prefix_length = 3
    claim = claim_of(model, None, None)
    assert (claim.causal, claim.prefix) == (True, 3)
