"""Checks and notes about the patterns of a model before it is used."""

import re

import pytest

from clearformer.config import Causal, Fixed, Graph, Local, PerHead, Shifted, Strided
from clearformer.tasks.pattern_checks import (
    describe,
    memory_notes,
    require_visible_keys,
    unlikely_values,
)


def test_reports_stride_longer_than_sequence():
    assert unlikely_values((Causal() & Strided(stride=64), Causal() & Strided(stride=64)), 64) == []
    assert unlikely_values((Causal() & Strided(stride=65),), 64) == [
        "Causal & Strided(65): 65 is longer than the sequence of 64: a window covers all of "
        "it, and a stride connects no two positions"
    ]


def test_rejects_pattern_with_position_without_keys():
    require_visible_keys((Causal(), Causal() & Fixed(stride=4, summary=1)), 64)
    graph = Graph(edges=((0, 0), (1, 0), (3, 3)), nodes=4)
    message = (
        "under Causal & Graph(3 edges, 4 nodes) position 2 attends to no key in a sequence of "
        "4: add Local(1) to the pattern, so that each position attends to itself"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        require_visible_keys((Causal(), Causal() & graph), 4)
    with pytest.raises(
        ValueError, match="positions 2, 4, 5, … attend to no key in a sequence of 9"
    ):
        require_visible_keys((graph,), 9)
    require_visible_keys((graph | Local(window=1),), 9)


def test_describe_shows_pattern_expression():
    heads = PerHead(patterns=(Local(window=2), Shifted(pattern=Strided(stride=3), by=4)))
    assert describe(Causal() & (heads | Causal())) == (
        "Causal & (PerHead(Local(2), Shifted(Strided(3), 4)) | Causal)"
    )


def test_reports_memory_of_attention_dropout_at_long_context(small):
    from clearformer.config import Dropout

    long = small("gpt2", length=2048, dropout=Dropout(attention=0.1))
    (said,) = memory_notes(long)
    assert "attention dropout of 0.1 at a context of 2048" in said
    assert "67 MB for each layer and sequence" in said
    assert "--model.dropout.attention 0" in said
    assert memory_notes(small("gpt2", length=2048)) == []
    assert memory_notes(small("gpt2", length=2047, dropout=Dropout(attention=0.1))) == []
    sparse = small("sparse", length=4096, dropout=Dropout(attention=0.1), kernel="blockwise")
    assert memory_notes(sparse) == []
