"""Token embedding: sum of its parts, and positions counted from the first real token."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer.core.embedding import Embedding, first_real_token
from clearformer.core.positions import Learned, Sinusoidal

VOCABULARY, WIDTH, LENGTH = 13, 8, 10


@pytest.fixture
def tokens():
    return torch.randint(VOCABULARY, (3, 6))


def token_table():
    return nn.Embedding(VOCABULARY, WIDTH)


def test_embedding_is_sum_of_token_position_and_segment(tokens):
    embedding = Embedding(
        token_table(),
        LENGTH,
        position=Learned(),
        segments=2,
        scale=math.sqrt(WIDTH),
        norm=nn.LayerNorm(WIDTH),
        dropout=0.3,
    )
    segments = torch.randint(2, tokens.shape)
    total = (
        embedding.token.weight[tokens] * math.sqrt(WIDTH)  # scaled before the position is added
        + embedding.position.table.weight[:6]
        + embedding.segment.weight[segments]
    )
    torch.manual_seed(1)
    given = embedding(tokens, segments=segments)
    torch.manual_seed(1)
    torch.testing.assert_close(given, F.dropout(embedding.norm(total), 0.3))
    torch.testing.assert_close(embedding.eval()(tokens, segments=segments), embedding.norm(total))


def test_segment_defaults_to_first(tokens):
    embedding = Embedding(token_table(), LENGTH, segments=2)
    expected = embedding.token(tokens) + embedding.segment.weight[0]
    torch.testing.assert_close(embedding(tokens), expected)


def test_embedding_without_options_is_table_lookup(tokens):
    embedding = Embedding(token_table(), LENGTH)
    assert torch.equal(embedding(tokens), embedding.token.weight[tokens])


def test_sinusoidal_positions_use_model_dtype(tokens):
    embedding = Embedding(token_table(), LENGTH, position=Sinusoidal())
    waves = Sinusoidal().added(torch.arange(6), WIDTH)
    torch.testing.assert_close(embedding(tokens), embedding.token(tokens) + waves.float())
    assert embedding.bfloat16()(tokens).dtype == torch.bfloat16


@pytest.mark.parametrize("start", [0, 4])
def test_positions_continue_after_the_cache(tokens, start):
    embedding = Embedding(token_table(), LENGTH, position=Learned())
    expected = embedding.token(tokens) + embedding.position.table.weight[start : start + 6]
    torch.testing.assert_close(embedding(tokens, start=start), expected)


@pytest.mark.parametrize("start", [0, 2])
def test_positions_count_from_the_first_real_token(tokens, start):
    embedding = Embedding(token_table(), LENGTH, position=Learned())
    padding = torch.tensor([0, 1, 3])
    attention_mask = torch.arange(start + 6) >= padding[:, None]
    y = embedding(tokens, attention_mask, start=start)
    for row, first in enumerate(padding.tolist()):
        for column in range(6):
            place = start + column - first
            if place >= 0:
                expected = embedding.token.weight[tokens[row, column]]
                expected = expected + embedding.position.table.weight[place]
                torch.testing.assert_close(y[row, column], expected)


def test_first_real_token_with_any_padding():
    attention_mask = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]]).bool()
    assert first_real_token(attention_mask).tolist() == [2, 0, 1, 0]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (
            torch.zeros(2, 0, dtype=torch.long),
            "tokens: the shape is (2, 0), but a sequence must have at least one token: pass one",
        ),
        (
            torch.zeros(4, dtype=torch.long),
            "tokens: the shape is (4,), but it must be (batch, tokens): "
            "pass tokens[None] for one sequence",
        ),
        (
            torch.tensor([[1, 13]]),
            "token id 13 is outside the vocabulary of 13 (0 to 12): "
            "was the text encoded with another model's tokenizer?",
        ),
        (
            torch.tensor([[-1, 12]]),
            "token id -1 is outside the vocabulary of 13 (0 to 12): "
            "was the text encoded with another model's tokenizer?",
        ),
    ],
)
def test_rejects_invalid_token_ids(tokens, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Embedding(token_table(), LENGTH)(tokens)


def test_rejects_positions_beyond_learned_table(tokens):
    embedding = Embedding(token_table(), LENGTH, position=Learned())
    message = (
        "the sequence has 11 tokens, but the learned positions end at 10: "
        "shorten it, or build the model with length=11"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        embedding(tokens, start=5)
