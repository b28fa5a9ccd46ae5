"""Exported GGUF files in llama.cpp itself: logits, greedy tokens, perplexity and token ids.

By the wheel of cyllama; where it has none, these tests are skipped. Those of the other files, by
the gguf library's reader and dequantizer, always run.
"""

import numpy as np
import pytest
import torch

from clearformer.builder import build
from clearformer.config import Biases, GenerationDefaults, LinearScaling, Llama3Scaling, Rotary
from clearformer.hub.gguf_export import to_gguf
from clearformer.text import ByteFallbackPairs, BytePairs, Bytes
from clearformer.text.byte_fallback import BYTES, FallbackSpec
from clearformer.text.specs import BytePairSpec

llama_cpp = pytest.importorskip("cyllama.llama.llama_cpp", reason="needs llama.cpp: cyllama")

SIZES = {"width": 64, "hidden": 96, "heads": 4, "key_heads": 2, "length": 128}
PLAIN = {**SIZES, "query_key_norm": None}
LLAMA3 = Rotary(base=100.0, scaling=Llama3Scaling(factor=8.0, low=1.0, high=4.0, length=16))
KINDS = {
    "gpt2": ("gpt2", {**SIZES, "key_heads": None}),
    "llama": ("modern", PLAIN),
    "llama-linear": (
        "modern",
        {**PLAIN, "position": Rotary(scaling=LinearScaling(factor=2.5))},
    ),
    "llama3": ("modern", {**PLAIN, "position": LLAMA3}),
    "llama-biased": (
        "modern",
        {**PLAIN, "biases": Biases(attention=True, attention_output=True, feed_forward=True)},
    ),
    "qwen2": (
        "modern",
        {**PLAIN, "biases": Biases(attention=True, attention_output=False, feed_forward=False)},
    ),
    "qwen3": ("modern", SIZES),
    "qwen3-wide": ("modern", {**SIZES, "head_width": 32}),
}
FLOAT32 = 0  # of ggml


class _Weights(llama_cpp.LlamaModel):
    """A model that knows the size of its vocabulary, which `get_logits_ith` asks it for."""

    @property
    def n_vocab(self):
        return self.get_vocab().n_vocab


class LlamaCpp:
    """A file opened by llama.cpp on one thread, with a cache in float32."""

    def __init__(self, path):
        settings = llama_cpp.LlamaModelParams()
        settings.n_gpu_layers = 0
        self.weights = _Weights(str(path), settings)
        self.vocabulary = self.weights.get_vocab()
        settings = llama_cpp.LlamaContextParams()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = 128
        settings.n_threads = settings.n_threads_batch = 1
        settings.type_k = settings.type_v = FLOAT32
        settings.flash_attn_type = 0  # off: it computes in float16
        self.context = llama_cpp.LlamaContext(self.weights, settings)

    def logits(self, tokens):
        self.context.kv_cache_clear()
        batch = llama_cpp.LlamaBatch(n_tokens=len(tokens), embd=0, n_seq_max=1)
        for place, token in enumerate(tokens):
            batch.add(token, place, [0], True)
        self.context.decode(batch)
        return np.array([self.context.get_logits_ith(place) for place in range(len(tokens))])

    def close(self):
        self.context.close()
        self.weights.close()


@pytest.fixture(scope="module", autouse=True)
def quiet():
    llama_cpp.disable_logging()


@pytest.fixture
def opened():
    """Files that are open in llama.cpp until the end of a test."""
    models = []

    def open_file(path):
        models.append(LlamaCpp(path))
        return models[-1]

    yield open_file
    for model in models:
        model.close()


@pytest.fixture
def model(small, scrambled, pairs):
    def make(kind):
        family, settings = KINDS[kind]
        config = small(family, **{**settings, "vocabulary": pairs.size})
        torch.manual_seed(0)
        return scrambled(build(config)).eval(), config

    return make


def greedy(step, tokens, count):
    """`count` tokens, each the most likely one by `step`."""
    tokens = list(tokens)
    for _ in range(count):
        tokens.append(int(step(tokens)[-1].argmax()))
    return tokens


def loss_of(logits, tokens):
    """Mean negative log-likelihood of a text."""
    logits = torch.as_tensor(logits)[:-1]
    return float(torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[1:])))


@pytest.mark.parametrize("kind", KINDS)
def test_same_logits_and_greedy_tokens_in_float32(model, pairs, opened, tmp_path, kind):
    ours, config = model(kind)
    to_gguf(ours, config, GenerationDefaults(), pairs, tmp_path / "m.gguf")
    theirs = opened(tmp_path / "m.gguf")
    prompt = pairs.encode("The meaning of a name in an expression").tolist()
    with torch.no_grad():
        expected = ours(torch.tensor([prompt]))[0].numpy()
    # llama.cpp computes gelu by a table in float16.
    tolerance = 2e-2 if kind == "gpt2" else 1e-4  # 1e-5 on one CPU, but sums have no fixed order
    assert np.abs(theirs.logits(prompt) - expected).max() < tolerance * np.abs(expected).max()

    def our_step(tokens):
        with torch.no_grad():
            return ours(torch.tensor([tokens]))[0].numpy()

    assert greedy(theirs.logits, prompt, 30) == greedy(our_step, prompt, 30)


def trained(model, tokens, steps=60):
    """The model after some steps on rows of 64 tokens; perplexity of noise says little."""
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    rows = torch.tensor(tokens[: len(tokens) // 65 * 65]).view(-1, 65)
    draw = torch.Generator().manual_seed(0)
    for _ in range(steps):
        batch = rows[torch.randint(len(rows), (8,), generator=draw)]
        logits = model(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen2", "qwen3"])
def test_perplexity_in_8_bits(small, pairs, prose, opened, tmp_path, kind):
    """Within 0.5 % of float32 in our own model, computed by llama.cpp."""
    family, settings = KINDS[kind]
    config = small(family, **{**settings, "vocabulary": pairs.size})
    tokens = pairs.encode(prose).tolist()
    torch.manual_seed(0)
    ours = trained(build(config), tokens[480:20_000])
    to_gguf(ours, config, GenerationDefaults(), pairs, tmp_path / "m.gguf", "q8_0")
    theirs = opened(tmp_path / "m.gguf")
    losses = []
    for start in range(0, 480, 120):
        row = tokens[start : start + 120]
        with torch.no_grad():
            before = ours(torch.tensor([row]))[0]
        losses.append([loss_of(each, row) for each in (before, theirs.logits(row))])
    before, after = np.exp(np.mean(losses, axis=0))
    assert before < 150  # it has learned something: 300 tokens
    assert after == pytest.approx(before, rel=0.005)


@pytest.mark.parametrize("weights", ["f16", "q4_0"])
def test_other_weights_are_read_alike(model, pairs, opened, tmp_path, weights):
    from clearformer.hub.importing import import_checkpoint

    ours, config = model("qwen3")
    to_gguf(ours, config, GenerationDefaults(), pairs, tmp_path / "m.gguf", weights)
    theirs, copy = opened(tmp_path / "m.gguf"), import_checkpoint(tmp_path / "m.gguf").model()
    prompt = pairs.encode("The meaning of a name").tolist()
    with torch.no_grad():
        expected = copy(torch.tensor([prompt]))[0].numpy()
    found = theirs.logits(prompt)
    # llama.cpp also rounds the activations, to 8 bits for quantized weights.
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.999


# --- tokenizers ------------------------------------------------------------------------------

END, BEGIN = "<|endoftext|>", "<s>"


@pytest.fixture(scope="session")
def tokenizers(prose, pairs):
    vocabulary, merges = pairs.spec.vocabulary, pairs.spec.merges

    def other(*arguments, **named):
        return BytePairs(BytePairSpec((*vocabulary, END, BEGIN), merges, *arguments, **named))

    letters = ("▁", *sorted(set("".join(prose.split())) - set("<>")))
    words = {w: None for w in prose.split() if len(w) < 9 and set(w) <= set(letters)}
    parts = dict.fromkeys(w[:n] for w in words for n in range(2, len(w) + 1))
    spaced = dict.fromkeys(f"▁{w[:n]}" for w in words for n in range(1, len(w) + 1))
    tokens = [*letters, *[t for t in (*parts, *spaced) if t not in letters]]
    known = set(tokens)
    joined = [(t[:n], t[n:]) for t in tokens for n in range(1, len(t)) if {t[:n], t[n:]} <= known]
    specials = ("<unk>", BEGIN, "</s>")
    fallback = FallbackSpec((*specials, *BYTES, *tokens), tuple(joined), specials=specials,
                            prefix=(BEGIN,))  # fmt: skip
    return {
        "bytes": Bytes(),
        "own": pairs,
        "gpt2": other("gpt2", specials=(END, BEGIN)),
        "llama3": other("llama3", True, (END, BEGIN), (BEGIN,)),
        "qwen2": other("qwen2", specials=(END,), added=(BEGIN,)),
        "fallback": ByteFallbackPairs(fallback),
    }


@pytest.mark.parametrize("kind", ["bytes", "own", "gpt2", "llama3", "qwen2", "fallback"])
def test_llama_cpp_gives_the_same_ids(
    tokenizers, small, texts, strange_texts, opened, tmp_path, kind
):
    tokenizer = tokenizers[kind]
    config = small("modern", **{**SIZES, "vocabulary": tokenizer.size, "layers": 1})
    ends = () if kind in ("bytes", "own") else (tokenizer.specials.get(END, 2),)
    generation = GenerationDefaults(end_ids=ends)
    to_gguf(build(config).eval(), config, generation, tokenizer, tmp_path / "m.gguf")
    theirs = opened(tmp_path / "m.gguf")
    vocabulary = theirs.vocabulary
    assert (vocabulary.token_eos() in ends) == bool(ends)
    prefix = list(tokenizer.prefix_ids)
    for text in (*texts[:60], *strange_texts):
        if "\0" in text:  # a string of C ends there
            continue
        ids = vocabulary.tokenize(text, True, False)
        # llama.cpp reads an empty text as nothing, without a leading space.
        assert ids == prefix + tokenizer.encode(text).tolist() or not text, repr(text)
        # Token by token: `detokenize` drops spaces before apostrophes.
        plain = tokenizer.encode(text).tolist()
        pieces = [vocabulary.token_to_piece(token, 0, False) for token in plain]
        assert pieces == [tokenizer.decode([token]) for token in plain] or kind == "fallback"
