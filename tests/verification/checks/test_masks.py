"""Mask checks: padding, alternative code paths, and mask values."""

from clearformer.verification.checks import masks as checks
from clearformer.verification.findings import Severity


def problems(findings):
    return [each.name for each in findings if each.severity is not Severity.INFO]


def test_correct_models_give_no_finding(probe):
    for source in ("rotary", "encoder", "torch_encoder", "ours_attention"):
        made = probe(source)
        for check in (checks.padding, checks.slow_paths, checks.mask_values, checks.upside_down):
            assert problems(check(made)) == []


def test_finding_states_score_that_beats_mask(probe):
    (found,) = checks.mask_values(probe("gpt", 'float("-inf")', "-100.0"))
    assert "hidden scores get -100: a score 100 above the others" in found.sentence
    assert found.severity is Severity.WARNING


def test_multiplied_mask_is_an_error(probe):
    fill = 'att = att.masked_fill(self.bias[:T, :T] == 0, float("-inf"))  # type: ignore[index]'
    (found,) = checks.mask_values(probe("gpt", fill, "att = att * self.bias[:T, :T]"))
    assert found.severity is Severity.ERROR


def test_finds_mean_over_padding(probe):
    made = probe(
        "torch_encoder",
        "return self.encoder(x, src_key_padding_mask=hidden)",
        "return self.encoder(x, src_key_padding_mask=hidden).mean(1)",
    )
    assert "padding-leak-right" in problems(checks.padding(made))


def test_finds_nan_in_fully_masked_row(probe):
    made = probe("seed_masked", "offset=1", "offset=0")
    (found,) = checks.empty_rows(made)
    assert found.name == "nan-row"
    assert "positions [0]" in found.sentence
