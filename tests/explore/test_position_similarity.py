"""Position vectors and their similarity."""

import numpy as np
import pytest

from clearformer.explore.arrays import unpack
from clearformer.explore.position_similarity import position_vectors, positions
from clearformer.http_server.errors import Problem


@pytest.mark.parametrize(
    ("family", "kind"),
    [("gpt2", "learned"), ("original", "sinusoidal"), ("modern", "rotary"), ("xl", "relative")],
)
def test_similarity_is_symmetric_and_one_with_itself(loaded, family, kind):
    told = positions(loaded(family))
    table = unpack(told["similarity"])
    assert told["kind"] == kind
    np.testing.assert_array_equal(table, table.T)
    np.testing.assert_array_equal(np.diag(table), 1)


def test_learned_vectors_match_table(loaded):
    model = loaded("gpt2")
    _, vectors = position_vectors(model)
    assert vectors.equal(model.model.module.embedding.position.table.weight)


def test_rejects_scheme_without_vectors(loaded):
    import dataclasses

    from clearformer.config import ALiBi

    model = loaded("gpt2")
    config = dataclasses.replace(model.config, position=ALiBi())
    other = dataclasses.replace(model, model=dataclasses.replace(model.model, config=config))
    with pytest.raises(Problem, match="has no position vectors"):
        positions(other)
