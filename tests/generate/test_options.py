"""Generation options: validated alone, then prepared for a model (tests/model)."""

import pytest

from clearformer.builder import build
from clearformer.config import GenerationDefaults
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.options import GenerationOptions, token_id
from clearformer.text import Bytes


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lookup": 0}, "`lookup` is 0, but it must be at least 1"),
        ({"batch_size": 10**6}, "`batch_size` is 1000000, but it must be at most 131,072"),
        ({"choices": ["a"], "pattern": "a"}, "give either `choices` or `pattern`, and not both"),
        ({"forced": "a", "pattern": "a"}, "give either `forced` or `pattern`, and not both: each"),
        ({"length_penalty": 1.0}, "`length_penalty` is that of a beam: add `beam`"),
        ({"beam": 2, "samples": 3}, "`samples` is 3, but `beam` 2 follows only 2: use a wider"),
        ({"beam": 2, "context_overflow": "slide"}, "`context_overflow` slide does not go with"),
    ],
)
def test_rejects_contradicting_options(options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        GenerationOptions(**options)


def test_token_id_accepts_text_or_id():
    assert token_id("a", Bytes()) == token_id("#97", Bytes()) == token_id(97, None) == 97
    assert token_id("#", Bytes()) == 35
    with pytest.raises(
        ValueError, match=r"'ab' is not a token of this tokenizer \(bytes\), which en"
    ):
        token_id("ab", Bytes())
    with pytest.raises(ValueError, match="there is no token #256: this tokenizer"):
        token_id("#256", Bytes())
    with pytest.raises(ValueError, match="`banned` is text, but the model has no tokenizer"):
        token_id("a", None)


def test_prepare_resolves_options_for_model(small):
    config = small("gpt2", vocabulary=256)
    model = LanguageModel(build(config).eval(), config, GenerationDefaults(), Bytes())
    generation = GenerationOptions(max_tokens=4, stop="e", banned=["b"]).prepare(model)
    assert generation.config.stop == ("e",)
    assert generation.config.sampling.banned_ids == (98,)
    assert generation.config.sampling.temperature == 0.8
    texts = list(generation.completions(["a", "b"]))
    assert [each.prompt for each in texts] == ["a", "b"]
    assert list(generation.completions(["a"], should_stop=lambda: True)) == []
    (note,) = generation.check_prompts(["a", "x" * 100], "p.txt")
    assert note.startswith("p.txt, line 2: the prompt has 100 tokens, but the context of")
    strict = GenerationOptions(max_tokens=4, context_overflow="stop").prepare(model)
    with pytest.raises(ValueError, match=r"^p.txt, line 2: the prompt has"):
        strict.check_prompts(["a", "x" * 100], "p.txt")
