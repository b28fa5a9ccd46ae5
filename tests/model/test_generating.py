"""Generation from Python: texts, ids, options, streams."""

import inspect
from dataclasses import fields

import pytest
import torch

import clearformer as cf
from clearformer.cli.evaluate import Evaluate
from clearformer.cli.generate import Generate
from clearformer.cli.translate import Translate
from clearformer.generate.options import GenerationOptions
from clearformer.inference.packed_linear import FastLinear
from clearformer.text import Bytes


def test_generate_accepts_one_or_many_texts_or_ids(generator):
    alone = generator.generate("12 b", max_tokens=6)
    assert isinstance(alone, str)
    assert generator.generate(["12 b"], max_tokens=6) == [alone]
    assert generator.generate([], max_tokens=6) == []
    ids = generator.generate(list(b"12 b"), max_tokens=6)
    assert Bytes().decode(ids) == alone
    assert generator.generate(torch.tensor([list(b"12 b")]), max_tokens=6) == [ids]
    two = generator.generate("12 b", max_tokens=6, samples=2)
    assert two[0] == alone
    assert generator.generate(["12 b"], max_tokens=6, samples=2) == [two]
    best = generator.generate("12 b", max_tokens=6, beam=3, samples=2)
    assert len(best) == 2
    assert generator.generate("12 b", max_tokens=6, seed=1) != alone


def test_completions_and_stream_agree(generator):
    (found,) = generator.completions("12 b", max_tokens=6)
    tokens = list(generator.stream("12 b", max_tokens=6))
    assert tuple(tokens) == found.tokens
    assert found.text == generator.generate("12 b", max_tokens=6)
    assert found.finish_reason == "length"
    assert generator.completions("12 b", max_tokens=6, beam=2)[0].score < 0
    with pytest.raises(ValueError, match="stream gives one text as it is sampled: leave samples"):
        generator.stream("12 b", samples=2)
    with pytest.raises(ValueError, match="generate has no parameter 'sample': did you mean 'sam"):
        generator.completions("12 b", sample=2)


def test_generate_with_constraints_and_drafts(generator, runs):
    assert generator.generate("2 + 2 = ", pattern="[0-9]{3}").isdecimal()
    assert generator.generate("x", choices=["yes", "no"]) in ("yes", "no")
    assert generator.generate("x", max_tokens=40, stop="e").count("e") == 0
    plain = generator.generate("x", max_tokens=12)
    assert generator.generate("x", max_tokens=12, draft=runs / "generator") == plain
    assert generator.generate("x", max_tokens=12, draft=generator) == plain
    assert generator.generate("x", max_tokens=12, lookup=3) == plain
    assert ord("e") not in generator.generate([120], max_tokens=40, banned=["e"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temprature": 1}, "generate has no parameter 'temprature': did you mean 'temperature'?"),
        ({"samples": 0}, "`samples` is 0, but it must be at least 1"),
        ({"beam": 2, "top_k": 3}, "`top_k` does not go with `beam`, which does not sample: leave"),
        ({"max_tokens": 0}, "`max_tokens` is 0, but it must be at least 1"),
        ({"context_overflow": "x"}, "`context_overflow` is 'x', but it must be one of slide, "),
        ({"max_tokens": 1.5}, "`max_tokens` is 1.5, but it must be a whole number"),
        ({"max_tokens": float("inf")}, "`max_tokens` is inf, but it must be a whole number"),
        ({"temperature": "hot"}, "`temperature` is 'hot', but it must be a finite number"),
        ({"top_k": True}, "`top_k` is True, but it must be a whole number"),
        ({"seed": None}, "`seed` is None, but it must be a whole number"),
        ({"samples": 10**12}, "`samples` is 1000000000000, but it must be at most 131,072"),
        ({"pattern": 3}, "`pattern` is 3, but it must be a string"),
        ({"stop": [None]}, r"`stop` is \[None\], but it must be a string or a list of them"),
        ({"banned": 3}, "`banned` is 3, but it must be a list of tokens or ids"),
        ({"prompts": torch.tensor(3)}, r"prompts is tensor\(3\), but it must be"),
        ({"prompts": 7}, "prompts is 7, but it must be a string, a list of token ids, or a list"),
        ({"prompts": ["a", 7]}, r"prompts\[1\] is 7, but it must be a string or a list of token"),
        ({"prompts": [300]}, "the prompt has the id 300, but modern-tiny has the ids 0 to 255"),
    ],
)
def test_generate_rejects_invalid_options(generator, options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        generator.generate(**{"prompts": "a", **options})


def test_names_and_defaults_match_command_line():
    def defaults(function):
        found = inspect.signature(function).parameters.values()
        return {each.name: each.default for each in found if each.kind is each.KEYWORD_ONLY}

    options = {each.name: each.default for each in fields(GenerationOptions)}
    assert defaults(cf.Model.generate) == options
    for function, command in (
        (cf.Model.generate, Generate),
        (cf.Model.evaluate, Evaluate),
        (cf.Model.translate, Translate),
    ):
        flags = {each.name: each.default for each in fields(command)}
        ours = defaults(function)
        assert ours.keys() <= flags.keys()
        different = {name for name in ours if ours[name] != flags[name]}
        assert different <= {"batch_size"}  # of translate: a pipe is answered line by line


def test_generation_does_not_change_module(generator):
    """Its copy shares the parameters: training goes on, and the copy never is out of date."""
    before = {name: (p.clone(), type(p)) for name, p in generator.module.named_parameters()}
    first = generator.generate("12 b", max_tokens=6, temperature=0)
    assert not any(isinstance(each, FastLinear) for each in generator.module.modules())
    for name, parameter in generator.module.named_parameters():
        assert torch.equal(parameter, before[name][0])
        assert parameter.requires_grad
    with torch.no_grad():
        for parameter in generator.module.parameters():
            parameter.normal_()
    assert generator.generate("12 b", max_tokens=6, temperature=0) != first


def test_hooks_run_in_generation_too(generator):
    seen = []
    block = generator.module.stack.blocks[0]
    handle = block.register_forward_hook(lambda module, args, out: seen.append(out.shape[1]))
    generator.generate("12 b", max_tokens=3)
    assert seen == [4, 1, 1]
    handle.remove()
    generator.generate("12 b", max_tokens=3)
    assert len(seen) == 3
