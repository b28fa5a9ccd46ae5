"""`clearformer generate`: streaming, files, constraints, drafts; each error is one sentence."""

import json
import re
from types import SimpleNamespace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from clearformer.generate import options
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.options import GenerationOptions, token_id
from clearformer.generate.sequence import Uniforms
from clearformer.hub.importing import import_checkpoint
from clearformer.hub.write_run import write_run
from clearformer.inference.packed_linear import PackedLinear
from clearformer.text import ByteFallbackPairs, Bytes, Words
from clearformer.text.byte_fallback import BYTES, SPACE, FallbackSpec


def test_streams_text_and_reports_speed(clearformer, run):
    said = clearformer("generate", run, "12 g", "--max-tokens", "40", "--temperature", "0")
    assert said.out.startswith("12 g")
    assert len(said.out.encode()) >= 44
    assert re.search(r"^40 tokens in [\d.]+ s, [\d,]+ tokens/s$", said.err.strip())
    assert clearformer("generate", run, "12 g", "--max-tokens", "4", "--quiet").err == ""


@pytest.mark.parametrize("extra", [("--lookup", "5"), ("--draft", "RUN"), ("--batch-size", "1")])
def test_drafts_do_not_change_text(clearformer, run, extra):
    extra = [run if word == "RUN" else word for word in extra]
    plain = clearformer("generate", run, "12 g", "--max-tokens", "90", "--seed", "3").out
    assert (
        clearformer("generate", run, "12 g", "--max-tokens", "90", "--seed", "3", *extra).out
        == plain
    )


def test_file_gives_one_result_per_line(clearformer, run, folder):
    prompts = [f"{i} green" if i % 3 else str(i) for i in range(20)]
    (folder / "prompts.txt").write_text("\n".join(prompts) + "\n")
    ask = ("generate", run, "--file", str(folder / "prompts.txt"), "--jsonl", "--samples", "2")
    rows = [json.loads(line) for line in clearformer(*ask, "--max-tokens", "50").out.splitlines()]
    assert [row["prompt"] for row in rows] == [p for p in prompts for _ in range(2)]
    assert [row["sample"] for row in rows] == [0, 1] * 20
    assert {row["reason"] for row in rows} == {"length"}
    assert all(row["tokens"] == 50 for row in rows)
    alone = clearformer(*ask, "--max-tokens", "50", "--batch-size", "1").out.splitlines()
    assert [json.loads(line)["text"] for line in alone] == [row["text"] for row in rows]
    drafted = clearformer(*ask, "--max-tokens", "50", "--lookup", "4").out.splitlines()
    assert [json.loads(line)["text"] for line in drafted] == [row["text"] for row in rows]


def test_samples_are_generated_in_batches(clearformer, run, monkeypatch):
    """At most batch-size texts share a batch, and the texts do not depend on it."""
    ask = (
        "generate",
        run,
        "x",
        "--jsonl",
        "--samples",
        "5",
        "--batch-size",
        "2",
        "--max-tokens",
        "9",
    )
    rows = clearformer(*ask).out
    sizes = []
    generate_many = options.generate_many

    def counted(model, prompts, *settings, **more):
        sizes.append(len(prompts))
        return generate_many(model, prompts, *settings, **more)

    monkeypatch.setattr(options, "generate_many", counted)
    monkeypatch.setattr(options, "MAX_BATCH", 2)
    assert clearformer(*ask).out == rows
    assert sizes == [2, 2, 1]


def test_constraints_are_fulfilled(clearformer, run):
    ask = ("generate", run, "x", "--jsonl", "--samples", "6", "--temperature", "3")
    rows = [
        json.loads(line) for line in clearformer(*ask, "--choices", "yes,no,maybe").out.splitlines()
    ]
    assert {row["text"] for row in rows} <= {"yes", "no", "maybe"}
    assert {row["reason"] for row in rows} == {"complete"}
    rows = clearformer(*ask, "--choices", r"yes\, sir,no\n").out.splitlines()
    assert {json.loads(row)["text"] for row in rows} == {"yes, sir", r"no\n"}
    rows = clearformer(*ask, "--pattern", r"\d{4}-\d\d").out.splitlines()
    assert all(re.fullmatch(r"\d{4}-\d\d", json.loads(row)["text"]) for row in rows)


def test_reports_incomplete_constraint(clearformer, run):
    note = "note: the text does not match yet after --max-tokens 4 tokens"
    for more in ((), ("--jsonl", "--samples", "2")):
        ask = ("generate", run, "x", "--pattern", r"\d{4}-\d\d", *more, "--quiet")
        assert note in clearformer(*ask, "--max-tokens", "4").err
        assert "note" not in clearformer(*ask, "--max-tokens", "7").err
    for more in ((), ("--jsonl", "--samples", "2")):
        # 30 of 32 tokens are the prompt, and the last token is not read.
        ask = ("generate", run, "x" * 30, "--pattern", r"\d{4}-\d\d", *more, "--quiet")
        assert clearformer(*ask, "--context-overflow", "stop").err.splitlines()[0] == (
            "note: the text does not match yet after 3 tokens, because the context is full: "
            "see --context-overflow"
        )
        assert "note" not in clearformer(*ask, "--context-overflow", "slide").err
        stopped = clearformer(*ask, "--stop", "-").err
        assert "note: the text does not match yet where --stop has cut it" in stopped
    # Long enough for some form, though a longer one was possible.
    free = ("generate", run, "x", "--pattern", r"\d+", "--max-tokens", "4", "--quiet")
    assert "note" not in clearformer(*free).err


def test_stop_banned_and_forced_flags(clearformer, run):
    # The most likely text: letters of a random one differ between machines that round otherwise.
    ask = ("generate", run, "1", "--temperature", "0", "--max-tokens", "60", "--quiet")
    free = clearformer(*ask).out
    letter = free[5]
    assert letter.isascii()
    assert letter not in clearformer(*ask, "--banned", letter).out.removeprefix("1").rstrip("\n")
    assert clearformer(*ask, "--forced", "see").out.startswith("1see")
    stopped = clearformer(*ask, "--stop", free[5:8]).out
    assert stopped.rstrip("\n") == free[: free.index(free[5:8], 1)]


@pytest.mark.parametrize("weights", ["float32", "int8", "int4"])
def test_generates_with_quantized_weights(clearformer, run, weights):
    said = clearformer("generate", run, "12 green", "--weights", weights, "--max-tokens", "20")
    assert said.code == 0
    assert said.out.startswith("12 green")


@pytest.mark.parametrize("several", [("--samples", "2"), ("--beam", "2")])
def test_compiled_model_is_not_packed(clearformer, run, monkeypatch, several):
    """The compiler does not support packed weights; compilation itself is too slow to test."""
    packed = []

    def compiled(writer, backend):
        packed.append(any(isinstance(each, PackedLinear) for each in writer.module.modules()))
        return writer

    monkeypatch.setattr(LanguageModel, "compiled", compiled)
    ask = ("generate", run, "12 g", "--max-tokens", "3", *several)
    assert clearformer(*ask, "--compile").out == clearformer(*ask).out
    assert packed == [False]


def test_shows_probabilities(clearformer, run):
    rows = clearformer("generate", run, "12 g", "--max-tokens", "5", "--show-probabilities").out
    assert len(re.findall(r"^ +[\d.]+ +[\d.]+ bits +[\d.]+  \".*\"$", rows, re.MULTILINE)) == 5
    ask = ("generate", run, "12 g", "--max-tokens", "5", "--show-probabilities", "--jsonl")
    (told,) = map(json.loads, clearformer(*ask, "--temperature", "1").out.splitlines())
    assert bytes(told["ids"]).decode(errors="replace") == told["text"]
    assert [2**-bits for bits in told["bits"]] == pytest.approx(told["probabilities"], rel=1e-4)
    uniforms = Uniforms(0, 0)
    assert told["uniforms"] == [uniforms[place] for place in range(5)]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("",), "the prompt is empty, and a bytes tokenizer has no token that begins a text"),
        (("x" * 33, "--context-overflow", "stop"), "the prompt has 33 tokens, but the context of"),
        (("x", "--banned", "xyz"), "'xyz' is not a token of this tokenizer (bytes)"),
        (("x", "--banned", "#256"), "there is no token #256: this tokenizer (bytes) has the"),
        (("x", "--banned", "#²"), "'#²' is not a token of this tokenizer (bytes), which en"),
        (("x", "--banned", "#" + "9" * 5000), "'#999"),
        (("x", "--forced", "a", "--pattern", "a+"), "give either --forced or --pattern, and not"),
        (("x", "--forced", "a", "--choices", "a"), "give either --forced or --choices, and not"),
        (("x", "--pattern", "[ab]", "--banned", "a", "b"), "the pattern '[ab]' cannot be used: no"),
        (("x", "--temperature", "-1"), "--temperature is -1.0, but it must be at least 0"),
        (("x", "--top-p", "1.5"), "--top-p is 1.5, but it must be at most 1"),
        (("x", "--top-p", "0"), "top-p is 0.0, but it must be above 0 and at most 1"),
        (("x", "--stop", ""), "a stop string is empty, so no text could begin: leave it out"),
        (("x", "--choices", "yes,"), "the choice '' cannot be encoded"),
        (("x", "--pattern", "("), "the pattern '(' cannot be used: a ( is not closed"),
        (("x", "--pattern", "a", "--choices", "a"), "give either --choices or --pattern"),
        (("x", "--lookup", "2", "--draft", "r"), "give either --lookup or --draft, and not both"),
        (("x", "--max-tokens", "0"), "--max-tokens is 0, but it must be at least 1"),
        (("x", "--samples", "0"), "--samples is 0, but it must be at least 1"),
        (("x", "--batch-size", "1000000"), "--batch-size is 1000000, but it must be at most 131,"),
        (("x", "--beam", "1000000"), "--beam is 1000000, but it must be at most 1,024"),
        (("x", "--batch-size", "0"), "--batch-size is 0, but it must be at least 1"),
        (("x", "--lookup", "0"), "--lookup is 0, but it must be at least 1"),
    ],
)  # fmt: skip
def test_errors_are_one_sentence_and_write_nothing(clearformer, run, flags, sentence):
    said = clearformer("generate", run, *flags)
    assert said.complaint.startswith(sentence)
    assert said.out == ""


def test_invalid_prompt_is_reported_before_generating(clearformer, run, tmp_path):
    (tmp_path / "p.txt").write_text("one\ntwo\n" + "x" * 40 + "\n")
    strict = ("--context-overflow", "stop")
    said = clearformer("generate", run, "--file", str(tmp_path / "p.txt"), *strict)
    assert said.complaint.startswith(f"{tmp_path / 'p.txt'}, line 3: the prompt has 40 tokens")
    assert said.out == ""


def test_long_prompt_keeps_its_end_with_a_note(clearformer, run):
    done = clearformer("generate", run, "12 green bottles" * 3, "--max-tokens", "3")
    assert done.code == 0
    assert (
        "note: the prompt has 48 tokens, but the context of modern-small is 32: its last 24 tokens "
        "are continued (--context-overflow stop refuses it)"
    ) in done.err


def test_rejects_too_few_tokens_and_contradicting_flags(clearformer, run, folder):
    (folder / "p.txt").write_text("12 g\n")
    file = str(folder / "p.txt")
    for words, sentence in {
        ("--choices", "yes,no,maybe", "--max-tokens", "2"):
            "--max-tokens is 2, but --choices needs 5 tokens for 'maybe'",
        ("--forced", "green", "--max-tokens", "3"):
            "--max-tokens is 3, but --forced needs 5 tokens for 'green'",
        ("--forced", "green", "--banned", "e"):
            "--forced 'green' needs a token that --banned rules out",
        ("--file", file): "give either a prompt or --file, and not both",
        ("--samples", "2", "--show-probabilities"):
            "--show-probabilities shows one text: add --jsonl for several",
        ("--choices", "yes,no", "--banned", "y", "n"):
            "no choice is left: a banned token is needed for 'yes' and for 'no'",
    }.items():  # fmt: skip
        done = clearformer("generate", run, "12 g", *words)
        assert done.complaint == sentence
        assert (done.code, done.out) == (2, ""), "what cannot be is said before anything is written"


def test_token_flags_are_encoded_as_continuation(small):
    """A tokenizer that adds a leading space does not add one after a prompt."""
    merges = ((SPACE, "e"), ("e", "s"))
    parts = FallbackSpec(("<unk>", *BYTES, SPACE, "e", "s", *map("".join, merges)), merges)
    tokenizer = ByteFallbackPairs(parts)
    named = {name: place for place, name in enumerate(parts.vocabulary)}
    assert token_id("e", tokenizer) == named["e"]
    assert token_id(" e", tokenizer) == named[SPACE + "e"]
    writer = SimpleNamespace(eos_ids=lambda: (), tokenizer=tokenizer, config=small("gpt2"))
    forced = GenerationOptions(forced="es").prepare(writer).config
    assert forced.sampling.forced_ids == (named["es"],)
    form = GenerationOptions(choices=["e", " es"]).prepare(writer).config.constraint
    assert form.texts == {(named["e"],), (named[SPACE + "e"], named["s"])}
    words = Words(["good"])
    with pytest.raises(ValueError, match=r"^`banned` 'good' cannot be .* so give ' good'$"):
        token_id("good", words)
    assert token_id(" good", words) == 2


# --- a beam --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs(tmp_path_factory, scrambled):
    """transformers' models of bytes with random weights, and the folders of their runs."""

    def make(family):
        torch.manual_seed(0)
        shape = {"vocab_size": 256, "bos_token_id": None, "eos_token_id": None}
        if family == "gpt2":
            shape |= {"n_positions": 48, "n_embd": 16, "n_layer": 2, "n_head": 4}
            model = GPT2LMHeadModel(GPT2Config(**shape))
        else:
            shape |= {"max_position_embeddings": 48, "hidden_size": 16, "num_hidden_layers": 2,
                      "num_attention_heads": 4, "num_key_value_heads": 2,
                      "intermediate_size": 24}  # fmt: skip
            model = LlamaForCausalLM(LlamaConfig(**shape))
        folder = tmp_path_factory.mktemp(family)
        scrambled(model).eval().save_pretrained(folder / "theirs")
        write_run(import_checkpoint(folder / "theirs", tokenizer="bytes"), folder / "run")
        return model, folder / "run"

    return {family: make(family) for family in ("gpt2", "llama")}


@pytest.mark.parametrize("penalty", [(), ("--length-penalty", "0.2")])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_beam_search_matches_transformers(clearformer, theirs, tmp_path, family, penalty):
    model, run = theirs[family]
    prompts = ["12 green", "7", "bottles of ale", "x y"]

    def expected(several):
        longest = max(map(len, several))
        ids = torch.tensor([[0] * (longest - len(p)) + list(p.encode()) for p in several])
        keep = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in several])
        found = model.generate(
            ids, attention_mask=keep, num_beams=4, num_return_sequences=2, do_sample=False,
            early_stopping=False, length_penalty=float(*penalty[1:] or [1]), max_new_tokens=14,
            pad_token_id=0,
        )  # fmt: skip
        return [Bytes().decode(row[longest:]) for row in found]

    (tmp_path / "p.txt").write_text("\n".join(prompts))
    ask = ("generate", str(run), "--beam", "4", "--samples", "2", "--max-tokens", "14", *penalty)
    for batch in ("16", "8", "1"):
        told = clearformer(
            *ask, "--file", str(tmp_path / "p.txt"), "--jsonl", "--batch-size", batch
        ).out
        rows = [json.loads(line) for line in told.splitlines()]
        assert [row["text"] for row in rows] == expected(prompts)
        assert [row["prompt"] for row in rows] == [each for each in prompts for _ in range(2)]
        assert [row["sample"] for row in rows] == [0, 1] * 4
        assert {(row["tokens"], row["reason"]) for row in rows} == {(14, "length")}
        assert all(rows[i]["score"] >= rows[i + 1]["score"] for i in (0, 2, 4, 6))
    alone = clearformer(*ask, prompts[0])
    assert alone.out == "".join(f"{prompts[0]}{each}\n" for each in expected(prompts[:1]))
    assert alone.err.startswith("28 tokens in ")


def test_beam_supports_int8_bans_and_context_limit(clearformer, run):
    ask = ("generate", run, "12 g", "--beam", "3", "--jsonl")
    (free,) = map(json.loads, clearformer(*ask, "--max-tokens", "20").out.splitlines())
    (banned,) = map(
        json.loads,
        clearformer(*ask, "--max-tokens", "20", "--banned", free["text"][0]).out.splitlines(),
    )
    assert free["text"][0] not in banned["text"]
    assert clearformer(*ask, "--max-tokens", "20", "--weights", "int8").code == 0
    (cut,) = map(json.loads, clearformer(*ask).out.splitlines())
    assert (cut["tokens"], cut["reason"]) == (32 - 4 + 1, "context")
    (on,) = map(
        json.loads,
        clearformer(*ask, "--max-tokens", "40", "--context-overflow", "continue").out.splitlines(),
    )
    assert (on["tokens"], on["reason"]) == (40, "length")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--temperature", "0.8"), "does not sample"),
        (("--top-k", "3"), "does not sample"),
        (("--top-p", "0.5"), "does not sample"),
        (("--min-p", "0.1"), "does not sample"),
        (("--typical-p", "0.9"), "does not sample"),
        (("--lookup", "3"), "does not sample"),
        (("--draft", "r"), "does not sample"),
        (("--show-probabilities",), "does not sample"),
        (("--repetition-penalty", "1.1"), "searches for the most likely text"),
        (("--frequency-penalty", "1.1"), "searches for the most likely text"),
        (("--forced", "x"), "searches for the most likely text"),
        (("--stop", "x"), "searches for the most likely text"),
        (("--choices", "x,y"), "searches for the most likely text"),
        (("--pattern", "x"), "searches for the most likely text"),
    ],
)
def test_rejects_flags_that_conflict_with_beam(clearformer, run, flags, why):
    said = clearformer("generate", run, "x", "--beam", "4", *flags)
    assert said.complaint == f"{flags[0]} does not go with --beam, which {why}: leave one out"
    assert said.out == ""


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--length-penalty", "1"), "--length-penalty is that of a beam: add --beam"),
        (("--beam", "0"), "--beam is 0, but it must be at least 1"),
        (("--beam", "2", "--samples", "3"),
         "--samples is 3, but --beam 2 follows only 2: use a wider beam"),
        (("--beam", "2", "--length-penalty", "nan"), "--length-penalty is nan, but it must be a"),
        (("--beam", "2", "--context-overflow", "slide"), "--context-overflow slide does not go"),
        (("--beam", "2", "--max-tokens", "0"), "--max-tokens is 0, but it must be at least 1"),
        (("--beam", "2", "--min-tokens", "3", "--max-tokens", "2"), "min_tokens is 3, but it"),
    ],
)  # fmt: skip
def test_rejects_invalid_beam(clearformer, run, flags, sentence):
    said = clearformer("generate", run, "x", *flags)
    assert said.complaint.startswith(sentence)
    assert said.out == ""
