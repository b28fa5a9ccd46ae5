"""Loading runs, checkpoints and exported files."""

import pytest
import torch

import clearformer as cf


def test_load_opens_runs_and_checkpoints(runs, generator):
    assert generator.module.training is False
    assert generator.run_config.data.source.endswith("mine.txt")
    assert str(generator).startswith(f"<Model {runs / 'generator'}: a generator, ")
    assert generator.parameter_count == sum(p.numel() for p in generator.module.parameters())
    step = cf.load(runs / "generator/checkpoints/step-6")
    assert step.generate("1", max_tokens=5) == generator.generate("1", max_tokens=5)
    half = cf.load(runs / "generator", dtype="bfloat16", device=torch.device("cpu"))
    assert next(half.module.parameters()).dtype == torch.bfloat16
    assert len(half.generate([49], max_tokens=3)) == 3


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"path": "nothing"}, r"there is no folder or file nothing: give a run \(what --out"),
        ({"path": ["a"]}, r"`path` is \['a'\], but it must be the path of a folder or file"),
        ({"path": None}, r"`path` is None, but it must be the path"),
        ({"path": "x\0y"}, r"'x\\x00y' cannot be opened: .*null byte"),
        ({"path": "generator", "device": "abacus"}, r"device is 'abacus', which this torch cannot"),
        ({"path": "generator", "dtype": "int3"}, r"`dtype` is 'int3', but it must be one of"),
        ({"path": "generator", "weights": "x"}, r"`weights` is 'x', but it must be one of"),
        ({"path": "generator", "devise": 1}, r"load has no parameter 'devise': did you mean 'dev"),
        ({"path": ""}, r"`path` is '', but it must be the path"),
        ({"path": "generator", "device": None}, r"`device` is None, but it must be a name such"),
        ({"path": "generator", "device": "meta"}, r"`device` is meta, which holds no numbers"),
        ({"path": "generator", "dtype": torch.int32}, r"`dtype` is 'int32', but it must be one"),
        ({"path": "generator", "tokenizer": "bytes"}, r"generator is a run, which has its own tok"),
        (
            {"path": "generator", "weights": "int8", "dtype": "bfloat16"},
            r"`weights` is int8, but `dtype` is bfloat16: leave one of them out",
        ),
        ({"path": "mine.txt"}, r"mine.txt is not a file of weights: their names end in .safetens"),
        ({"path": "."}, r"\. is not a run and not a Hugging Face folder: it has neither"),
    ],
)
def test_load_rejects_invalid_paths(runs, given, sentence, monkeypatch):
    monkeypatch.chdir(runs)
    with pytest.raises(ValueError, match=f"^{sentence}"):
        cf.load(**given)


def test_errors_match_command_line(runs, clearformer):
    for path in (runs, runs / "nothing", runs / "mine.txt"):
        with pytest.raises(ValueError) as problem:  # noqa: PT011
            cf.load(path)
        assert clearformer("generate", str(path), "x").complaint == str(problem.value)
    with pytest.raises(ValueError) as problem:  # noqa: PT011
        cf.load(runs / "classifier").generate("x")
    said = clearformer("generate", str(runs / "classifier"), "x").complaint
    assert said == str(problem.value)


def test_int4_needs_a_cpu(runs, monkeypatch):
    monkeypatch.setattr("clearformer.model.loading.as_device", lambda device: torch.device("cuda"))
    with pytest.raises(
        ValueError, match=r"^`weights` is int4, which needs a CPU, but `device` is c"
    ):
        cf.load(runs / "generator", weights="int4", device="cuda")
