"""Model and load: one class for everything a trained model can do."""

import inspect
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

import clearformer as cf
from clearformer.cli.evaluate import Evaluate
from clearformer.cli.generate import Generate
from clearformer.cli.translate import Translate
from clearformer.config import GenerationDefaults
from clearformer.generate.options import GenerationOptions
from clearformer.inference.packed_linear import FastLinear
from clearformer.text import Bytes

TINY = {"length": 24, "layers": 1, "width": 16, "heads": 2, "model.hidden": 32, "threads": 1,
        "quiet": True}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a trained model of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)
        text = folder / "mine.txt"
        text.write_text("\n".join(f"{i} bottles of ale on the wall." for i in range(300)))
        labelled = [(f"{w} film number {i}", w) for i in range(12) for w in ("good", "bad")]
        pairs = [(f"one {i}", f"eins {i}") for i in range(40)]
        shared = {**TINY, "batch_size": 4, "steps": 6}
        cf.train("modern-tiny", data=text, out="generator", key_heads=1, **shared)
        cf.train("classifier-imdb", data=labelled, out="classifier", **shared)
        cf.train("bert-mini-masked", data=text, out="masked", **{**shared, "data.vocabulary": 280})
        cf.train(
            "original-tiny",
            data=pairs,
            out="translator",
            **{**TINY, "steps": 6, "decoder_layers": 1, "batch_tokens": 256},
        )
    return folder


@pytest.fixture
def generator(runs):
    return cf.load(runs / "generator")


# --- load ----------------------------------------------------------------------------------


def test_import_does_not_load_torch():
    code = "import sys, clearformer; assert 'torch' not in sys.modules; print(len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 250
    assert {*cf.PUBLIC, "__version__"} == set(cf.__all__) <= set(dir(cf))
    for name in cf.__all__:
        assert getattr(cf, name)
    with pytest.raises(AttributeError, match="no attribute 'laod'; did you mean 'load'"):
        cf.laod  # noqa: B018


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


# --- generate ------------------------------------------------------------------------------


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


def test_optimized_models_generate_same_text(runs, generator):
    asked = (["12 bottles", "7"], {"max_tokens": 8, "temperature": 0})
    plain = generator.generate(asked[0], **asked[1])
    for model in (cf.load(runs / "generator").optimize(), cf.load(runs / "generator").optimize(2)):
        assert model.generate(asked[0], **asked[1]) == plain
    eager = cf.load(runs / "generator").compile(backend="eager")
    assert eager.generate(asked[0], **asked[1]) == plain
    int8 = cf.load(runs / "generator", weights="int8")
    assert len(int8.generate("12 b", max_tokens=5).encode()) >= 5


def test_int4_needs_a_cpu(runs, monkeypatch):
    monkeypatch.setattr("clearformer.model._device", lambda device: torch.device("cuda"))
    with pytest.raises(
        ValueError, match=r"^`weights` is int4, which needs a CPU, but `device` is c"
    ):
        cf.load(runs / "generator", weights="int4", device="cuda")


def test_rejects_saving_quantized_or_packed_model(runs, tmp_path):
    for model, why in (
        (cf.load(runs / "generator", weights="int8"), "was quantized"),
        (cf.load(runs / "generator", weights="int4"), "was quantized"),
        (cf.load(runs / "generator").optimize(4), "was packed by optimize"),
    ):
        for write in (model.save, model.export):
            with pytest.raises(ValueError, match=f"{why}, so its weights cannot be written"):
                write(tmp_path / "out")
        assert model.parameter_count == cf.load(runs / "generator").parameter_count
    assert not (tmp_path / "out").exists()
    half = cf.load(runs / "generator", dtype="bfloat16")
    assert half.export(tmp_path / "theirs").difference < 1e-5
    again = cf.load(half.save(tmp_path / "half"))
    assert next(again.module.parameters()).dtype == torch.float32
    with pytest.raises(ValueError, match="`batch_size` is 0, but it must be at least 1"):
        half.optimize(0)


def test_hooks_run_in_generation_too(generator):
    seen = []
    block = generator.module.stack.blocks[0]
    handle = block.register_forward_hook(lambda module, args, out: seen.append(out.shape[1]))
    generator.generate("12 b", max_tokens=3)
    assert seen == [4, 1, 1]
    handle.remove()
    generator.generate("12 b", max_tokens=3)
    assert len(seen) == 3


# --- the other verbs -----------------------------------------------------------------------


def test_classify(runs):
    model = cf.load(runs / "classifier")
    one = model.classify("a good film")
    assert one.label in ("good", "bad")
    assert sum(one.probabilities.values()) == pytest.approx(1)
    assert model.classify(["a good film"]) == [one]
    assert model.classify([]) == []
    ids = model.tokenizer.encode("a good film").tolist()
    assert model.classify(ids).probabilities == one.probabilities
    with pytest.raises(ValueError, match=r"classifier: it can classify and embed, not fill$"):
        model.fill("a [MASK]")
    with pytest.raises(ValueError, match=r"^a text has the id 99999, but"):
        model.classify([99999])


def test_fill(runs):
    model = cf.load(runs / "masked")
    one = model.fill("1 [MASK] of ale", top_k=3)
    assert [len(each) for each in one] == [3]
    assert model.fill(["1 [MASK] of ale", "[MASK] [MASK]"], top_k=3)[0] == one
    assert model.fill([]) == []
    ids = model.tokenizer.encode("1 [MASK] of ale").tolist()
    assert model.fill(ids, top_k=3) == one
    with pytest.raises(ValueError, match="top_k is 0, but it must be from 1 to"):
        model.fill("[MASK]", top_k=0)
    with pytest.raises(ValueError, match=r"not generate$"):
        model.generate("x")


def test_embed(runs, generator):
    one = generator.embed("a text")
    assert one.shape == (16,)
    torch.testing.assert_close(generator.embed(["a text", "b"])[0], one)
    torch.testing.assert_close(generator.embed(list(b"a text")), one)
    assert generator.embed([]).shape == (0, 16)
    assert one.norm() == pytest.approx(1)
    assert generator.embed("a text", normalize=False).norm() != pytest.approx(1)
    with pytest.raises(ValueError, match="`batch_size` is -1, but it must be at least 1"):
        generator.embed(["a", "b"], batch_size=-1)
    with pytest.raises(ValueError, match="`pool` is 'x', but it must be one of mean"):
        generator.embed("a", pool="x")
    with pytest.warns(UserWarning, match="1 of 1 texts were cut to 24 tokens"):
        generator.embed("x" * 30)


def test_translate(runs):
    model = cf.load(runs / "translator")
    one = model.translate("one 3", max_tokens=5)
    assert isinstance(one, str)
    assert model.translate(["one 3", ""], max_tokens=5) == [one, ""]
    assert model.translate([]) == []
    ids = model.tokenizer.encode("one 3").tolist()
    assert model.translate(ids, max_tokens=5) == one
    best = model.translate("one 3", best=2, max_tokens=5)
    assert len(best) == 2
    assert model.translations(["one 3"], best=2, max_tokens=5)[0][0].score < 0
    with pytest.raises(ValueError, match=r"translator is a translator: it can translate, not gen"):
        model.generate("x")
    with pytest.raises(ValueError, match="`max_tokens` is 0, but it must be at least 1"):
        model.translate("one", max_tokens=0)
    with pytest.raises(ValueError, match="is a translator, which int8 does not support yet"):
        cf.load(runs / "translator", weights="int8")


def test_evaluate_matches_command_output(runs, generator, clearformer):
    found = generator.evaluate()
    assert found.metrics["bits_per_byte"] > 0
    printed = clearformer("evaluate", str(runs / "generator")).out.splitlines()
    assert printed[-len(found.lines()) :] == found.lines()
    assert str(found).splitlines()[-1] == printed[-1]
    (runs / "other.txt").write_text("something else entirely\n" * 20)
    assert generator.evaluate(runs / "other.txt").metrics != found.metrics
    before = {name: p.clone() for name, p in generator.module.named_parameters()}
    beside = generator.evaluate(weights="int8")
    assert beside.in_float32.metrics == found.metrics
    for name, parameter in generator.module.named_parameters():
        assert torch.equal(parameter, before[name])
    trained = generator.evaluate(part="train")
    assert "these figures are of the data that the run was trained on" in trained.notes
    with pytest.raises(ValueError, match="`part` is test, but"):
        generator.evaluate(part="test")


def test_trace_and_metrics(runs, generator):
    trace = generator.trace("12 b")
    weights = trace.weights(layer=0, head=1)
    assert weights.shape == (4, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4))
    torch.testing.assert_close(cf.trace(generator, "12 b").logits, trace.logits)
    assert repr(trace) == "<Trace of modern-tiny: 4 tokens, 1 layers>"
    with pytest.raises(ValueError, match=r"text is \[1.5\]|text\[0\] is 1.5"):
        generator.trace([1.5])
    rows = generator.metrics()
    assert [row["step"] for row in rows if row["event"] == "step"] == [1, 2, 3, 4, 5, 6]
    pandas = pytest.importorskip("pandas", reason="frames need pandas")
    assert isinstance(rows.frame(), pandas.DataFrame)


def test_metrics_need_a_run(generator, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"copy has no metrics\.jsonl: load the folder"):
        cf.load(generator.save(tmp_path / "copy")).metrics()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match="needs pandas: pip install pandas"):
        generator.metrics().frame()


# --- write ---------------------------------------------------------------------------------


def test_saved_and_exported_models_generate_same_text(generator, tmp_path):
    text = generator.generate("12 b", max_tokens=8)
    saved = cf.load(generator.save(tmp_path / "saved"))
    assert saved.generate("12 b", max_tokens=8) == text
    assert saved.run_config == generator.run_config
    with pytest.raises(ValueError, match="saved already exists"):
        generator.save(tmp_path / "saved")
    file = generator.export(tmp_path / "one.safetensors", to="safetensors").path
    assert cf.load(file).generate("12 b", max_tokens=8) == text
    folder = generator.export(tmp_path / "theirs").path
    assert cf.load(folder).generate("12 b", max_tokens=8) == text
    int8 = generator.export(tmp_path / "int8", to="int8").path
    with pytest.raises(ValueError, match="has weights in int8: make int4 of the run that it was"):
        cf.load(int8, weights="int4")
    with pytest.raises(ValueError, match="has int8 weights, which are for inference"):
        cf.load(int8).save(tmp_path / "again")
    with pytest.raises(ValueError, match="`to` is 'onnx', but it must be one of huggingface"):
        generator.export(tmp_path / "x", to="onnx")


def test_start_and_end_tokens_are_kept(runs, generator, tmp_path):
    end_id = generator.completions([[49, 50]], max_tokens=1, temperature=0)[0].tokens[0].id
    generation = GenerationDefaults(end_ids=(end_id,))
    run_config = replace(generator.run_config, generation=generation)
    ending = cf.Model(
        generator.module, generator.config, generator.tokenizer, run_config=run_config
    )
    translator = cf.load(runs / "translator")
    assert translator.run_config.generation.target_ids is not None
    for model in (ending, translator):
        name = model.config.family
        paths = [
            model.save(tmp_path / f"{name}-saved"),
            model.export(tmp_path / f"{name}.safetensors", to="safetensors").path,
        ]
        for path in paths:
            assert cf.load(path).run_config.generation == model.run_config.generation
    folder = ending.export(tmp_path / "theirs").path
    assert cf.load(folder).run_config.generation == generation
    for model in (ending, cf.load(folder), cf.load(tmp_path / "modern.safetensors")):
        assert model.generate([49, 50], max_tokens=9, temperature=0) == []
    expected = translator.translate("one 3")
    assert cf.load(tmp_path / "original.safetensors").translate("one 3") == expected


def test_custom_module_can_be_wrapped_and_saved(small, tmp_path):
    """Train it in plain PyTorch, wrap it, save it: then every command opens it."""
    config = small("gpt2", vocabulary=256, name="gpt2-mine")
    module = cf.build(config, seed=3)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    tokens = torch.tensor([list(b"abcdefgh")])
    loss = torch.nn.functional.cross_entropy(module(tokens)[0, :-1], tokens[0, 1:])
    loss.backward()
    optimizer.step()
    model = cf.Model(module, config, Bytes())
    again = cf.load(model.save(tmp_path / "mine"))
    torch.testing.assert_close(again.module(tokens), module.eval()(tokens))
    without = cf.Model(module, config)
    assert len(without.generate([97, 98], max_tokens=3)) == 3
    with pytest.raises(ValueError, match="the prompt is a string, but there is no tokenizer"):
        without.generate("ab")
    with pytest.raises(ValueError, match="gpt2-mine has no tokenizer: load it with tokenizer="):
        without.embed("ab")


def test_help_documents_every_parameter():
    """With its type in parentheses; of a method that takes the options of another, those it has."""
    functions = [each for name in cf.__all__ if inspect.isfunction(each := getattr(cf, name))]
    methods = ("generate", "completions", "stream", "classify", "fill", "embed", "translate",
               "evaluate", "trace", "save", "export", "compile", "optimize")  # fmt: skip
    functions += [getattr(cf.Model, name) for name in methods]
    assert len(functions) >= 20
    for function in functions:
        told = inspect.getdoc(function)
        for name, parameter in inspect.signature(function).parameters.items():
            if name == "self":
                continue
            stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
            listed = re.search(rf"^ +(\w+, )*{re.escape(stars)}{name}(, \w+)*( \(|:)", told, re.M)
            assert listed, f"{function.__qualname__} does not document {name}"


def test_public_signatures_do_not_use_any():
    """Of the front door and of core: a type says what to pass, and what comes back."""
    public = [value for name in cf.__all__ if callable(value := getattr(cf, name))]
    methods = [vars(cf.Model), vars(cf.Training), vars(cf.Trace)]
    public += [each for members in methods for name, each in members.items() if name[0] != "_"]
    for each in public:
        if inspect.isfunction(each):
            told = " ".join(map(str, inspect.get_annotations(each).values()))
            assert not re.search(r"\bAny\b", told), f"{each.__qualname__}: {told}"
    for path in Path(cf.core.__file__).parent.glob("*.py"):
        assert not re.search(r"\bAny\b", path.read_text()), path.name
