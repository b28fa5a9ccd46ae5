""" "Did you mean ...?" for unknown names."""

from clearformer.did_you_mean import closest, nearest


def test_nearest_suggests_likeliest_or_lists_all():
    assert nearest("gpt3", ["gpt2", "bert"]) == "did you mean 'gpt2'?"
    assert nearest("zzz", ["gpt2", "bert"]) == "known: gpt2, bert"
    assert nearest("zzz", iter(["gpt2", "bert"])) == "known: gpt2, bert"


def test_closest_returns_name_or_none():
    assert closest("tarin", ["train", "plan"]) == "train"
    assert closest("xyzzy", ["train", "plan"]) is None
