"""Position checks: order, rotation and frequencies."""

import math

import torch

from clearformer.verification.checks import positions as checks


def names(findings):
    return [each.name for each in findings]


def table(length=16, width=16, factor=1.0, sines=1.0):
    place = torch.arange(length).double()[:, None]
    freq = torch.exp(-math.log(10000.0) * factor * torch.arange(0, width, 2).double() / width)
    made = torch.zeros(length, width, dtype=torch.float64)
    made[:, 0::2], made[:, 1::2] = (place * freq * sines).sin(), (place * freq).cos()
    return made


def test_finds_wrong_sinusoids():
    assert checks.sinusoid_problem(table()) is None
    assert checks.sinusoid_problem(table(factor=0.5)) == "the exponent has i instead of 2i"
    assert "different frequencies" in checks.sinusoid_problem(table(sines=0.5))
    assert checks.sinusoid_problem(torch.randn(16, 16)) is None
    assert "sines" in checks.sinusoid_problem(torch.sin(torch.arange(8.0)[:, None] * torch.rand(8)))


def test_correct_models_give_no_finding(probe):
    for source in ("gpt", "rotary", "encoder", "translator"):
        made = probe(source)
        for check in (checks.order, checks.rotary, checks.sinusoids, checks.past_length):
            assert names(check(made)) == []


def test_finds_unused_positions(probe):
    made = probe("gpt", "self.wte(idx) + self.wpe(pos)", "self.wte(idx)")
    (found,) = checks.order(made)
    assert "wpe.weight is never used" in found.sentence


def test_finds_clamped_positions(probe):
    made = probe(
        "gpt",
        "assert self.block_size >= T",
        "assert 999 >= T",
        "self.wpe(pos)",
        "self.wpe(pos.clamp(max=23))",
        "self.bias[:T, :T] == 0",
        "torch.ones(T, T).tril() == 0",
    )
    (found,) = checks.past_length(made)
    assert "26 tokens are accepted, but there are 24 positions" in found.sentence
