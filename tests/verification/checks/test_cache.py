"""Cache checks: pieces compared with the whole sequence."""

from clearformer.verification.checks import cache as checks


def names(findings):
    return [each.name for each in findings]


def test_correct_caches_give_no_finding(probe):
    for source in ("rotary", "ours_attention"):
        made = probe(source)
        assert names(checks.steps(made)) == []
        assert names(checks.second_use(made)) == []


def test_finds_cache_in_wrong_order(probe):
    made = probe(
        "rotary", "v = torch.cat((past[1], v), dim=2)", "v = torch.cat((v, past[1]), dim=2)"
    )
    (found,) = checks.steps(made)
    assert found.name == "cache-differs"
    assert "pieces of [5, 1, 1] with past" in found.shows_with


def test_finds_state_between_calls(probe):
    made = probe(
        "seed",
        "b, t, k = x.size()",
        "b, t, k = x.size()\n        self.n = getattr(self, 'n', 0) + 1\n        x = x * self.n",
    )
    (found,) = checks.second_use(made)
    assert "keeps state between calls" in found.sentence


def test_source_recomputed_needs_a_cache(probe):
    assert names(checks.source_recomputed(probe("translator"))) == []
