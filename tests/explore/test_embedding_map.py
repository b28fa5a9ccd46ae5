"""Maps of embeddings: principal axes, neighbours, and every kind of model."""

import numpy as np
import pytest
import torch

from clearformer.explore import embedding_map as maps
from clearformer.explore.limits import MAX_MAP_POINTS
from clearformer.interpretability import embedding_map

KINDS = ("generator", "gpt2", "bert", "classifier", "original", "xl", "sparse", "modern")
TEXTS = ["the cat sat on the mat", "a good film", "to be or not to be", "one two three"]


def by_hand(vectors):
    """Principal components as numpy finds them, with the largest component positive."""
    x = vectors.double().numpy()
    center = x.mean(0)
    _, sizes, directions = np.linalg.svd(x - center, full_matrices=False)
    signs = [np.sign(each[np.abs(each).argmax()]) for each in directions[:2]]
    points = (x - center) @ (directions[:2] * np.array(signs)[:, None]).T
    return points, sizes[:2] ** 2 / (sizes**2).sum()


@pytest.mark.parametrize("count", [7, 40])  # fewer points than components, and more
def test_axes_are_the_principal_components(count, monkeypatch):
    monkeypatch.setattr(maps, "CHUNK", 6)
    vectors = torch.randn(count, 9, generator=torch.Generator().manual_seed(count)) + 2
    labels = [str(n) for n in range(count)]
    found = maps.EmbeddingMap("tokens", labels, vectors, maps.principal_axes(vectors))
    points, shares = by_hand(vectors)
    np.testing.assert_allclose(found.points.numpy(), points, atol=1e-9)
    np.testing.assert_allclose(found.shares, shares, atol=1e-9)
    again = maps.principal_axes(vectors)
    assert torch.equal(again.directions, found.axes.directions)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_a_map(loaded, kind):
    model = loaded(kind).model
    tokens = embedding_map(model)
    table = next(p for n, p in model.module.named_parameters() if n.endswith("token.weight"))
    assert torch.equal(tokens.vectors, table[: len(tokens.labels)].detach())
    np.testing.assert_allclose(tokens.points.numpy(), by_hand(tokens.vectors)[0], atol=1e-6)
    sentences = embedding_map(model, "sentences", TEXTS)
    assert sentences.points.shape == (4, 2)
    assert sentences.labels == TEXTS
    assert sentences.cut == (4 if kind == "xl" else 0)  # segments of 8 characters
    if kind in ("xl", "modern"):
        with pytest.raises(ValueError, match="has no position vectors: its positions"):
            embedding_map(model, "positions")
    else:
        assert embedding_map(model, "positions").points.shape == (64, 2)


def test_sentences_are_what_embed_computes(explorer_server):
    import clearformer as cf

    model = cf.load(explorer_server.runs / "bert")
    found = embedding_map(model, "sentences", TEXTS)
    assert torch.equal(found.vectors, model.embed(TEXTS, normalize=False))


def test_encoder_and_decoder_have_their_own_vectors(loaded):
    model = loaded("original").model
    for part, name in (("encoder", "source_embedding"), ("decoder", "target_embedding")):
        table = model.module.get_submodule(name).token.weight
        assert torch.equal(embedding_map(model, part=part).vectors, table.detach())


def test_neighbours_are_the_largest_cosines(loaded):
    found = embedding_map(loaded("gpt2").model)
    cosines = torch.cosine_similarity(found.vectors[5][None].double(), found.vectors.double())
    cosines[5] = -1
    nearest = found.neighbours(5, count=3)
    assert [each.index for each in nearest] == cosines.topk(3).indices.tolist()
    assert nearest[0].cosine == pytest.approx(float(cosines.max()), abs=1e-6)
    assert nearest[0].label == found.labels[nearest[0].index]
    assert len(found.neighbours(5, count=10_000)) == len(found.labels) - 1


def test_other_axes_are_kept(loaded):
    old, new = (embedding_map(loaded("gpt2", step).model) for step in ("step-10", "step-20"))
    same = embedding_map(loaded("gpt2", "step-10").model, axes=new.axes)
    # Its vectors are those of step 20 times 0.8.
    expected = (0.8 * new.vectors.double() - new.axes.center) @ new.axes.directions.T
    assert torch.allclose(same.points, expected, atol=1e-6)
    assert same.shares == pytest.approx(old.shares, abs=1e-6)


def test_crowded_map_shows_text_and_neighbours(loaded):
    found = embedding_map(loaded("gpt2").model)
    few = found.around([3, 9], 8)
    assert few[:2] == [3, 9]
    assert len(few) == 8
    near = [{each.index for each in found.neighbours(n, 4)} for n in (3, 9)]
    assert set(few[2:]) <= near[0] | near[1]
    assert len(found.labels) > MAX_MAP_POINTS  # so that the page has to choose
    assert found.around(list(range(20)), 8) == list(range(8))


def test_errors_say_what_is_wrong(loaded):
    bert = loaded("bert").model
    with pytest.raises(ValueError, match=r"there are no sentences to map: pass texts=\[...\]"):
        embedding_map(bert, "sentences")
    with pytest.raises(ValueError, match="`kind` is 'words', but it must be one of tokens"):
        embedding_map(bert, "words")
    with pytest.raises(ValueError, match="`part` is 'decoder', but it must be one of self"):
        embedding_map(bert, part="decoder")
    with pytest.raises(ValueError, match="the vectors of the sentences have NaN"):
        embedding_map(loaded("nan").model, "sentences", TEXTS)
    with pytest.raises(ValueError, match="`index` is -1"):
        embedding_map(bert).neighbours(-1)
