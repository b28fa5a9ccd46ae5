"""Compression metrics of a text, against hand computation."""

import math
from dataclasses import replace

import pytest
import torch

from clearformer.builder import build
from clearformer.config import HiddenMemory
from clearformer.core.model import Batch
from clearformer.data import open_text, prepare
from clearformer.families import xl
from clearformer.tasks import compression
from clearformer.tasks.compression import Compression, compress_segments
from clearformer.text import Bytes


def test_bits_per_byte_and_character_match_hand_computation():
    nats = 100 * math.log(2)
    found = Compression(
        nats=nats,
        tokens=50,
        size=40,
        characters=25,
        context=8,
        stride=4,
        parts=(0.5 * nats, 0.4 * nats, 0.1 * nats),
        lossless=True,
    )
    assert sum(found.scores) / 3 == pytest.approx(found.bits_per_byte)
    assert found.bits_per_byte == pytest.approx(2.5)
    assert found.bits_per_character == pytest.approx(4.0)
    assert found.loss == pytest.approx(2 * math.log(2))
    assert found.perplexity == pytest.approx(4.0)  # two bits a token
    assert "windows of 8 tokens 4 apart" in found.protocol
    assert "at least 4 others" in found.protocol


def test_batch_size_does_not_change_result(monkeypatch, tmp_path):
    from dataclasses import replace

    from clearformer import data
    from clearformer.builder import build
    from clearformer.data.texts import in_memory
    from clearformer.families import generator
    from clearformer.text import Bytes

    model = build(replace(generator(), length=8, layers=1, width=16, heads=2, hidden=32))
    text = data.TextSource("it", (in_memory("it", b"some text that goes on " * 10),))
    tokens = data.prepare(text, Bytes(), tmp_path)
    sizes = []
    monkeypatch.setattr(compression, "GROUPS", 1)
    whole = compression.compress(model, tokens, Bytes(), 8, 4)
    monkeypatch.setattr(compression, "MAX_LOGITS", 3 * 8 * 256)
    loss = model.loss
    monkeypatch.setattr(
        model, "loss", lambda batch: (sizes.append(len(batch.tokens)), loss(batch))[1]
    )
    few = compression.compress(model, tokens, Bytes(), 8, 4)
    assert max(sizes) == 3
    assert few.bits_per_byte == pytest.approx(whole.bits_per_byte, rel=1e-6)
    monkeypatch.setattr(compression, "GROUPS", 32)
    sizes.clear()
    parts = compression.compress(model, tokens, Bytes(), 8, 4)
    assert len(sizes) == len(parts.scores) >= 32, "of a short text too there is a standard error"
    assert parts.bits_per_byte == pytest.approx(whole.bits_per_byte, rel=1e-6)


def test_lossy_tokenizer_is_reported(tmp_path):
    """An unknown word is easy to predict, so its bytes must not count."""
    from clearformer import data
    from clearformer.data.texts import in_memory
    from clearformer.families import generator
    from clearformer.text import train

    def told(kind, text):
        tokenizer = train(kind, iter(["some text that goes on"]), 8 if kind == "words" else None)
        config = replace(generator(), length=8, layers=1, width=16, heads=2, hidden=32)
        model = build(replace(config, vocabulary=tokenizer.size))
        tokens = data.prepare(
            data.TextSource(text, (in_memory(text, text.encode() * 10),)), tokenizer, tmp_path
        )
        return compression.compress(model, tokens, tokenizer, 8, 4).protocol

    assert "does not keep all of this text" not in told("bytes", "some text that goes on ")
    assert "does not keep all of this text" not in told("characters", "some text that goes on ")
    assert "does not keep all of this text" in told("characters", "some text: ")
    assert "does not keep all of this text" in told("words", "Some other text ")


@pytest.fixture
def remembering(tmp_path, scrambled):
    config = replace(
        xl("tiny"), length=8, layers=2, width=16, heads=2, hidden=32, cache=HiddenMemory(length=6)
    )
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat, and the dog sat on the log.\n" * 4)
    return scrambled(build(config)), config, prepare(open_text(str(path)), Bytes(), tmp_path)


def test_segments_with_full_memory_equal_whole_text(remembering):
    model, config, tokens = remembering
    ids = torch.from_numpy(tokens.read(0, len(tokens)))[None]
    with torch.no_grad():
        whole = model.eval().loss(Batch(ids[:, :-1], ids[:, 1:]))[0].item()
    found = compress_segments(model, config, tokens, Bytes(), memory=1000, streams=1)
    assert found.nats == pytest.approx(whole, rel=1e-5)
    assert found.tokens == len(tokens) - 1
    assert "segments of 8 tokens with a memory of 1000" in found.protocol
    short = compress_segments(model, config, tokens, Bytes(), streams=1)
    assert short.memory == 6
    assert short.nats != pytest.approx(whole, rel=1e-5)


def test_parallel_streams_with_context_equal_single_stream(remembering):
    """Two layers with a memory of 6 and segments of 8 see 26 tokens before a segment at most."""
    model, config, tokens = remembering
    one = compress_segments(model, config, tokens, Bytes(), streams=1, memory=40)
    several = compress_segments(model, config, tokens, Bytes(), streams=4, memory=40)
    assert several.tokens == one.tokens
    assert several.nats == pytest.approx(one.nats, rel=0.01)
    assert "in 4 streams that each read 40 tokens before theirs" in several.protocol
