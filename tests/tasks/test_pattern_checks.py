"""What is said of a model's patterns before it is used."""

import re

import pytest

from clearformer.config import Causal, Fixed, Graph, Local, PerHead, Shifted, Strided
from clearformer.tasks.pattern_checks import costs, name, remarks, require_sight


def test_a_stride_longer_than_the_sequence_is_said_in_words():
    assert remarks((Causal() & Strided(stride=64), Causal() & Strided(stride=64)), 64) == []
    assert remarks((Causal() & Strided(stride=65),), 64) == [
        "Causal & Strided(65): 65 is longer than the sequence of 64: a window then covers all of "
        "it, and a stride joins no two positions"
    ]


def test_a_pattern_under_which_some_output_sees_nothing_is_refused_by_name():
    require_sight((Causal(), Causal() & Fixed(stride=4, summary=1)), 64)
    graph = Graph(edges=((0, 0), (1, 0), (3, 3)), nodes=4)
    message = (
        "under Causal & Graph(3 edges, 4 nodes) position 2 sees nothing in a sequence of 4, not "
        "even itself: add Local(1) to the pattern, so that everyone sees itself"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        require_sight((Causal(), Causal() & graph), 4)
    with pytest.raises(ValueError, match="positions 2, 4, 5, … see nothing in a sequence of 9"):
        require_sight((graph,), 9)
    require_sight((graph | Local(window=1),), 9)


def test_patterns_are_named_as_they_are_written():
    heads = PerHead(patterns=(Local(window=2), Shifted(pattern=Strided(stride=3), by=4)))
    assert name(Causal() & (heads | Causal())) == (
        "Causal & (PerHead(Local(2), Shifted(Strided(3), 4)) | Causal)"
    )


def test_attention_dropout_at_a_long_context_is_said(small):
    from clearformer.config import Dropout

    long = small("gpt2", length=2048, dropout=Dropout(attention=0.1))
    (said,) = costs(long)
    assert "attention dropout of 0.1 at a context of 2048" in said
    assert "67 MB for each layer and sequence" in said
    assert "--model.dropout.attention 0" in said
    assert costs(small("gpt2", length=2048)) == []
    assert costs(small("gpt2", length=2047, dropout=Dropout(attention=0.1))) == []
    sparse = small("sparse", length=4096, dropout=Dropout(attention=0.1), kernel="blockwise")
    assert costs(sparse) == []
