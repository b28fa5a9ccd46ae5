"""Batched equals single, chunked equals whole, cached equals uncached, for every kind of model."""

import weakref

import pytest
import torch

from clearformer import config as c
from clearformer.builder import build
from clearformer.config import GenerationDefaults
from clearformer.families import xl
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.sequence import GenerationConfig
from clearformer.generate.stream import generate, generate_many
from clearformer.inference.caches import inference_caches

POSITIONS = {
    "none": c.NoPosition(),
    "learned": c.Learned(),
    "sinusoidal": c.Sinusoidal(),
    "rotary": c.Rotary(),
    "relative": c.RelativeXL(),
    "alibi": c.ALiBi(),
}
PATTERNS = {
    "causal": (c.Causal(),),
    "local": (c.Causal() & c.Local(window=3),),
    "strided": (c.Causal() & (c.Local(window=2) | c.Strided(stride=3)),),
    "fixed": (c.Causal() & c.Fixed(stride=3, summary=1),),
    "in turn": (c.Causal() & c.Local(window=3), c.Causal() & c.Strided(stride=3)),
}
PASTS = {"cache": c.KVCache(), "memory": c.HiddenMemory(length=12)}
FAMILIES = ["generator", "gpt2", "modern", "sparse", "xl"]
TEXTS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7]]


def assert_near(given, expected):
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def whole(writer, text):
    return writer.module(torch.tensor([text]))[0, -1]


def check(writer, chunk):
    """Read, step and leave out rows; after each the logits are those of each text alone."""
    decoder = writer.decoder(chunk)
    texts = [list(text) for text in TEXTS]
    logits = decoder.prefill(texts, room=5)
    for step in range(5):
        for text, scores in zip(texts, logits, strict=True):
            assert_near(scores, whole(writer, text))
        if step == 2:
            decoder.select([2, 0])
            texts = [texts[2], texts[0]]
            logits = logits[[2, 0]]
        tokens = [int(scores.argmax()) for scores in logits]
        logits = decoder.step(tokens)
        for text, token in zip(texts, tokens, strict=True):
            text.append(token)
    assert decoder.full


@pytest.mark.parametrize("chunk", [None, 1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_batched_and_chunked_decoding_for_every_family(family, chunk, writer):
    check(writer(family), chunk)


@pytest.mark.parametrize("past", PASTS)
@pytest.mark.parametrize("patterns", PATTERNS)
@pytest.mark.parametrize("position", POSITIONS)
def test_batched_and_chunked_decoding_for_every_position_and_pattern(
    position, patterns, past, writer
):
    if past == "memory" and position in ("learned", "sinusoidal"):
        pytest.skip("a memory needs positions that compare")
    changed = {"position": POSITIONS[position], "patterns": PATTERNS[patterns]}
    check(writer("generator", cache=PASTS[past], **changed), chunk=3)


def test_memory_segments_do_not_depend_on_batch():
    """Prompts longer than a segment, of lengths that padding would set against each other."""
    config = xl("tiny")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = build(config).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.2 * torch.randn_like(weight))
        texts = [torch.randint(config.vocabulary, (count,)).tolist() for count in (150, 190)]
    made = LanguageModel(model, config, GenerationDefaults())
    assert config.length < 150
    together = made.decoder().prefill(texts, room=1)
    for text, scores in zip(texts, together, strict=True):
        assert_near(scores, made.decoder().prefill([text], room=1)[0])
    task = GenerationConfig(sampling=Sampling(temperature=0), max_tokens=20)
    alone = [generate(made, text, config=task).tokens for text in texts]
    both = [written.tokens for written in generate_many(made, texts, task)]
    assert [[t.id for t in each] for each in both] == [[t.id for t in each] for each in alone]


@pytest.mark.parametrize("family", ["gpt2", "modern"])
def test_rollback_removes_tokens(family, writer):
    made = writer(family)
    decoder = made.decoder()
    decoder.prefill([TEXTS[0]], room=6)
    several = decoder.extend([7, 8, 9])
    for count in (1, 2, 3):
        assert_near(several[count - 1], whole(made, [*TEXTS[0], *[7, 8, 9][:count]]))
    decoder.rollback(2)
    assert_near(decoder.step([2])[0], whole(made, [*TEXTS[0], 7, 2]))


def test_shared_prompt_is_prefilled_once(writer, monkeypatch):
    made = writer("gpt2")
    rows = []
    hidden = type(made.module).hidden
    monkeypatch.setattr(
        type(made.module),
        "hidden",
        lambda self, tokens, *rest, **more: (
            rows.append(len(tokens)) or hidden(self, tokens, *rest, **more)
        ),
    )
    decoder = made.decoder()
    logits = decoder.prefill([TEXTS[0], TEXTS[1], TEXTS[0]], room=2)
    after = decoder.step([7, 8, 9])
    monkeypatch.undo()
    assert rows == [2]
    assert logits[0].equal(logits[2])
    for text, token, scores in zip([TEXTS[0], TEXTS[1], TEXTS[0]], [7, 8, 9], after, strict=True):
        assert_near(scores, whole(made, [*text, token]))


def test_old_caches_are_freed_before_new_ones_are_made(writer, monkeypatch):
    decoder = writer("modern").decoder()
    decoder.prefill(TEXTS, room=2)
    decoder.step([7, 8, 9])
    old, made = weakref.ref(decoder.memory[0]), inference_caches

    def make(*given):
        assert old() is None
        return made(*given)

    monkeypatch.setattr("clearformer.inference.decoder.inference_caches", make)
    decoder.prefill(TEXTS, room=2)


def test_rejects_invalid_chunk(writer):
    with pytest.raises(ValueError, match=r"^chunk is 0, but it must be at least 1"):
        writer().decoder(chunk=0)
