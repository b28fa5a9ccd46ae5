import numpy as np
import pytest
import torch

from clearformer.compressor import protocols
from clearformer.compressor.protocols import Segments, Windows, claim, cut, protocol_for
from clearformer.core.heads import IGNORE
from clearformer.data import evaluation_windows
from clearformer.generate.language_model import LanguageModel


def language_model(model):
    return LanguageModel(model.module, model.config, model.run_config.generation, model.tokenizer)


def stepwise_bits(protocol, model, table, counts):
    predictor = protocol.predictor(model, len(table), None)
    bits = 0.0
    for place in range(table.shape[1] - 1):
        scores = predictor.read(table[:, place]).double().log_softmax(-1)
        following = torch.from_numpy(table[:, place + 1])[:, None]
        real = torch.from_numpy(counts > place + 1)
        bits -= float(scores.gather(1, following)[real, 0].sum()) / np.log(2)
    return bits


def rows(data, streams):
    tokens = np.frombuffer(data, np.uint8).astype(np.int64)
    starts, counts = cut(tokens, streams)
    table = np.zeros((streams, counts[0]), np.int64)
    for row, start, count in zip(table, starts, counts, strict=True):
        row[:count] = tokens[start : start + count]
    return table, counts


@pytest.mark.parametrize("family", ["modern", "gpt2", "sparse", "generator", "xl"])
def test_stepwise_bits_equal_window_bits(byte_model, text, family):
    """Predictions from earlier tokens alone give the same bits as the loss of `evaluate`."""
    model = language_model(byte_model(family))
    protocol = protocol_for(model.config)
    table, counts = rows(text[:145], 3)
    bits = stepwise_bits(protocol, model, table, counts)
    assert claim(model, protocol, table, counts) == pytest.approx(bits, rel=1e-5)


@pytest.mark.parametrize("family", ["modern", "sparse"])
def test_beginnings_of_windows_are_read_in_chunks(byte_model, text, family, monkeypatch):
    model = language_model(byte_model(family))
    protocol = protocol_for(model.config)
    table, counts = rows(text[:145], 3)
    whole = stepwise_bits(protocol, model, table, counts)
    monkeypatch.setattr(protocols, "READ_AT_ONCE", 7)
    shapes, hidden = set(), type(model.module).hidden

    def spy(self, tokens, *rest, **more):
        shapes.add(tuple(tokens.shape))
        return hidden(self, tokens, *rest, **more)

    monkeypatch.setattr(type(model.module), "hidden", spy)
    assert stepwise_bits(protocol, model, table, counts) == pytest.approx(whole, rel=1e-5)
    assert max(shapes) == (3, 2)  # of the 7 tokens that are read again in each stream


@pytest.mark.parametrize(("context", "stride"), [(12, 6), (12, 12), (12, 1), (7, 3), (100, 50)])
@pytest.mark.parametrize("length", [2, 12, 13, 14, 40])
def test_windows_match_evaluation_windows(context, stride, length):
    """But for the last one, which `evaluate` moves back to have a full window."""

    class Tokens:
        description = None

        def __len__(self):
            return length

        def read(self, start, stop):
            return np.arange(start, stop)

    batches = evaluation_windows(Tokens(), context, stride, 1, IGNORE)
    expected = [
        (batch.tokens[0][0], batch.tokens[0][-1] + 1, batch.targets[0][batch.targets[0] >= 0][0])
        for batch in batches
    ]
    found = [(w.start, w.stop, w.scored + 1) for w in Windows(context, stride).windows(length)]
    assert found[:-1] == expected[:-1]
    assert found[-1][1:] == expected[-1][1:]


def test_streams_differ_by_at_most_one_token():
    starts, counts = cut(np.zeros(11), 4)
    assert counts.tolist() == [3, 3, 3, 2]
    assert starts.tolist() == [0, 3, 6, 9]


def test_defaults_match_evaluate(byte_model):
    assert protocol_for(byte_model().config) == Windows(12, 6)
    assert protocol_for(byte_model("xl").config) == Segments(12, 12)


@pytest.mark.parametrize(
    ("family", "options", "sentence"),
    [
        ("modern", {"context": 0}, "`context` is 0, but it must be at least 1"),
        ("modern", {"stride": 13}, "`stride` is 13, but it must be at most the context, 12"),
        ("gpt2", {"context": 13}, "`context` is 13, but gpt2-small has 12 learned positions"),
        ("xl", {"stride": 3}, "`stride` is for windows"),
    ],
)
def test_rejects_invalid_options(byte_model, family, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        protocol_for(byte_model(family).config, **options)


def test_protocol_round_trips_through_json():
    for protocol in (Windows(12, 3), Segments(12, 0)):
        assert protocols.from_json(protocols.to_json(protocol)) == protocol
    for wrong in ({}, {"context": 3, "stride": 4}, {"context": 0, "stride": 0}, {"segment": 3}):
        with pytest.raises(ValueError, match="unknown protocol"):
            protocols.from_json(wrong)
