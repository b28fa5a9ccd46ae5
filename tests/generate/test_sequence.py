"""One generated sequence: its random numbers, its tokens, and its finish reason."""

import math

import pytest
import torch

from clearformer.generate.constraints import ChoiceConstraint, RegexConstraint
from clearformer.generate.sampling import Sampling
from clearformer.generate.sequence import GeneratedSequence, GenerationConfig, Uniforms
from clearformer.text import ByteFallbackPairs, Bytes
from clearformer.text.byte_fallback import BYTES, FallbackSpec

GREEDY = Sampling(temperature=0)


def logits(*likely, size=256):
    """Logits in which these ids come first, in this order."""
    scores = torch.zeros(size)
    scores[list(likely)] = torch.arange(len(likely), 0, -1.0) * 5
    return scores


def written(config, *steps, prompt=b"p"):
    """The texts of a sequence for these logits, and its finish reason."""
    row, texts = GeneratedSequence(list(prompt), config, Bytes()), []
    for step in steps:
        if row.finish_reason is None:
            texts += [token.text for token in row.advance(step)]
    return texts, row.finish_reason


def letters(text):
    return [logits(ord(letter)) for letter in text]


def test_uniforms_depend_only_on_seed_row_and_position():
    first = Uniforms(5, 3)
    late = first[9]
    again = Uniforms(5, 3)
    assert [first[i] for i in range(10)] == [again[i] for i in range(10)]
    assert again[9] == late
    assert len({Uniforms(seed, row)[0] for seed in range(9) for row in range(9)}) == 81
    assert all(0 <= again[i] < 1 for i in range(1000))
    assert Uniforms(-1, 0)[0] != Uniforms(1, 0)[0]


def test_token_records_probability_and_uniform():
    row = GeneratedSequence(
        [1], GenerationConfig(sampling=Sampling(temperature=0.5, top_k=2)), Bytes(), seed=3
    )
    scores = logits(65, 66)
    (token,) = row.advance(scores)
    assert token.uniform == Uniforms(3, 0)[0]
    assert token.probability == pytest.approx(float((scores / 0.5).topk(2).values.softmax(0)[0]))
    assert token.bits == pytest.approx(float(-scores.log_softmax(0)[65]) / math.log(2), abs=1e-5)
    assert (token.id, token.text) == (65, "A")


def test_incomplete_bytes_are_flushed_at_end():
    """For every finish reason: end token, interruption, length and stop string."""
    half = [logits(byte) for byte in b"a\xe2\x82"]
    ended = written(GenerationConfig(sampling=GREEDY, eos_ids=(0,)), *half, logits(0))
    assert ("".join(ended[0]), ended[1]) == ("a\ufffd", "end")
    assert "".join(written(GenerationConfig(sampling=GREEDY, max_tokens=3), *half)[0]) == "a\ufffd"
    row = GeneratedSequence([1], GenerationConfig(sampling=GREEDY), Bytes())
    tokens = [token for step in half for token in row.advance(step)]
    assert [token.id for token in tokens] == [0x61, 0xE2]  # the last one waits
    tokens += row.finish("context")
    assert "".join(token.text for token in tokens) == "a\ufffd"
    assert [token.id for token in tokens] == [*b"a\xe2\x82"]
    stopped = written(GenerationConfig(sampling=GREEDY, stop=("!",)), *half, logits(33))
    assert ("".join(stopped[0]), stopped[1]) == ("a\ufffd", "stop")


def test_stop_string_is_found_in_flushed_bytes():
    merged = ByteFallbackPairs(FallbackSpec(("<unk>", *BYTES, "a"), ()))
    ids = [1 + byte for byte in "日本".encode()]
    for eos_ids, max_tokens in (((257,), 9), ((), 6)):
        row = GeneratedSequence(
            [257],
            GenerationConfig(sampling=GREEDY, stop=("本",), eos_ids=eos_ids, max_tokens=max_tokens),
            merged,
        )
        tokens = []
        for token in [*ids, 257]:
            tokens += row.advance(logits(token, size=258)) if row.finish_reason is None else []
        assert ("".join(token.text for token in tokens), row.finish_reason) == ("日", "stop")


def test_finish_reasons():
    assert written(GenerationConfig(sampling=GREEDY, max_tokens=2), *letters("abc")) == (
        ["a", "b"],
        "length",
    )
    config = GenerationConfig(sampling=GREEDY, eos_ids=(0,))
    assert written(config, *letters("ab"), logits(0)) == (["a", "b"], "end")
    config = GenerationConfig(sampling=GREEDY, stop=("bc",))
    assert written(config, *letters("abcd")) == (["a"], "stop")
    assert written(GenerationConfig(sampling=GREEDY, stop=("bx",), max_tokens=2), *letters("ab"))[
        0
    ] == ["a", "b"]


def test_min_tokens_postpones_end():
    config = GenerationConfig(sampling=GREEDY, eos_ids=(0,), min_tokens=2)
    texts, reason = written(config, *[logits(0, 97)] * 3)
    assert (texts, reason) == (["a", "a"], "end")


def test_incomplete_character_becomes_replacement_at_end():
    assert written(GenerationConfig(sampling=GREEDY, max_tokens=2), logits(97), logits(0xC3)) == (
        ["a", "\ufffd"],
        "length",
    )


def test_text_is_complete_when_constraint_is_fulfilled():
    config = GenerationConfig(sampling=GREEDY, constraint=ChoiceConstraint(["yes", "no"], Bytes()))
    free = logits(ord("x"), ord("n"), ord("y"))
    assert written(config, free, *letters("zzz")) == (["n", "o"], "complete")


def test_model_decides_where_constraint_may_end():
    config = GenerationConfig(sampling=GREEDY, constraint=RegexConstraint("[0-9]+", Bytes()))
    assert written(config, *letters("12"), logits(ord("."), ord("3"))) == (["1", "2"], "complete")
    assert written(config, logits(ord("."), ord("3")), *letters("4."))[0] == ["3", "4"]


class Stuck:
    """A constraint that never allows the end."""

    start = 0

    def allowed(self, state):
        return torch.tensor([97, 98][state:][:1] if state < 2 else [])

    def may_end(self, state):
        return False

    def after(self, state, token):
        return state + 1


def test_rejects_constraint_that_gets_stuck():
    message = r"^after 2 tokens the constraint allows neither a token nor the end"
    with pytest.raises(ValueError, match=message):
        written(GenerationConfig(sampling=GREEDY, constraint=Stuck()), *letters("abc"))


def test_rejects_ban_that_conflicts_with_constraint():
    sampling = Sampling(temperature=0, banned_ids=(98,))
    message = r"^no token is left to choose: after 1 tokens the constraint allows 1, and other"
    with pytest.raises(ValueError, match=message):
        written(GenerationConfig(sampling=sampling, constraint=Stuck()), *letters("ab"))


def test_rejects_negative_index():
    with pytest.raises(ValueError, match=r"^the index of a sequence is -1, but it must be"):
        GeneratedSequence([1], GenerationConfig(), index=-1)


def test_finish_flushes_held_back_text():
    row = GeneratedSequence([1], GenerationConfig(sampling=GREEDY, stop=("ab",)), Bytes())
    assert row.advance(logits(97)) == []
    assert [token.text for token in row.finish("context")] == ["a"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokens": 0}, "max_tokens is 0, but it must be at least 1"),
        (
            {"max_tokens": 3, "min_tokens": 4},
            "min_tokens is 4, but it must be between 0 and max_tokens",
        ),
        ({"stop": ("",)}, "a stop string is empty"),
        (
            {
                "sampling": Sampling(forced_ids=(97,)),
                "constraint": ChoiceConstraint(["a"], Bytes()),
            },
            "there are forced tokens and a constraint, but both determine how the text",
        ),
    ],
)
def test_rejects_invalid_config(settings, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        GenerationConfig(**settings)
