"""Information flow checks: leaks are named by their origin."""

import pytest

from clearformer.verification.checks import information_flow as checks


def names(findings):
    return [each.name for each in findings]


def test_correct_model_gives_no_finding(probe):
    made = probe("gpt")
    for check in (checks.future_leak, checks.leak_in_training, checks.batch_coupling, checks.reach):
        assert names(check(made)) == []


def test_finding_states_distance_of_leak(probe):
    made = probe("seed_masked", "offset=1", "offset=2")
    (found,) = checks.future_leak(made)
    assert "it sees one token ahead" in found.sentence
    assert found.effect > 0.01
    assert "seed_masked.py" in found.place.line


def test_no_finding_without_causal_claim(probe):
    assert names(checks.future_leak(probe("seed"))) == []


@pytest.mark.parametrize(
    ("new", "name"),
    [
        ("self.ln_f(x + x.mean(1, keepdim=True))", "future-leak-through-pooling"),
        ("self.ln_f(x) / x.std(1, keepdim=True)", "future-leak-through-norm"),
        ("self.ln_f(x + x.flip(1))", "future-leak"),
    ],
)
def test_leak_is_named_by_origin(probe, new, name):
    assert names(checks.future_leak(probe("gpt", "self.ln_f(x)", new))) == [name]


def test_finds_coupled_batch_rows(probe):
    made = probe("gpt", "self.ln_f(x)", "self.ln_f(x + x.mean(0))")
    (found,) = checks.batch_coupling(made)
    assert found.place.line.startswith("mutant") or "gpt.py" in found.place.line


def test_finds_wrong_window_size(probe):
    window = (
        "\n        att = att.masked_fill(torch.ones(T, T).tril(-self.window{}) == 1, -torch.inf)"
    )
    fill = 'att = att.masked_fill(self.bias[:T, :T] == 0, float("-inf"))  # type: ignore[index]'
    named = ("self.heads = heads", "self.heads = heads\n        self.window = 4")
    right = probe("gpt", *named, fill, fill + window.format(""))
    assert names(checks.window(right)) == []
    (found,) = checks.window(probe("gpt", *named, fill, fill + window.format(" - 1")))
    assert "the window is 4, but a query sees 5 keys" in found.sentence
