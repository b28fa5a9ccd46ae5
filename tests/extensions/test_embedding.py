"""Neighbour embeddings and dropout of whole tokens."""

import torch
from torch import nn

from clearformer.extensions.embedding import NeighbourEmbedding, Neighbours

VOCABULARY, WIDTH, LENGTH = 13, 8, 10


def token_table():
    return nn.Embedding(VOCABULARY, WIDTH)


def test_neighbour_embedding_depends_on_previous_token():
    pairs = Neighbours(1009, WIDTH)
    seen = pairs(torch.tensor([[3, 4, 3, 4, 5]]))[0]
    assert torch.equal(seen[1], seen[3]), "the pair 3 4 stands twice"
    assert not torch.equal(seen[0], seen[2]), "the first token has no neighbour, the third has 4"
    assert not torch.equal(seen[3], pairs(torch.tensor([[4, 3]]))[0, 1]), "order matters"


def test_padding_is_not_a_neighbour():
    embedding = NeighbourEmbedding(token_table(), LENGTH, neighbours=1009)
    alone = embedding(torch.tensor([[3, 4]]))
    attention_mask = torch.tensor([[False, True, True]])
    for filler in (0, 7):
        padded = embedding(torch.tensor([[filler, 3, 4]]), attention_mask)
        assert torch.equal(padded[:, 1:], alone)


def test_token_dropout_drops_token_and_its_pairs():
    embedding = NeighbourEmbedding(token_table(), LENGTH, neighbours=1009, token_dropout=0.5)
    tokens = torch.randint(VOCABULARY, (50, 6))
    words, pairs = embedding.token(tokens), embedding.neighbours(tokens)
    torch.testing.assert_close(embedding.eval()(tokens), words + pairs)
    given = embedding.train()(tokens)
    alone = torch.isclose(given, 2 * words).all(-1)
    both = torch.isclose(given, 2 * words + 4 * pairs, atol=1e-5).all(-1)
    gone = (given == 0).all(-1)
    assert 0.3 < gone.float().mean() < 0.7
    assert (gone | alone | both)[:, 1:].all(), "scaled up by what is dropped, pairs twice"
    assert alone[:, 1:].any()
    assert both[:, 1:].any()
    follows = gone[:, :-1] & ~gone[:, 1:]
    assert (alone[:, 1:] | ~follows).all(), "after a dropped token there is no pair"
