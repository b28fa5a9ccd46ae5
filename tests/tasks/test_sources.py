"""Tokenizer, texts and tables of a run."""

import pytest

from clearformer.config import DataConfig
from clearformer.data import DataFolders
from clearformer.tasks import sources


@pytest.mark.parametrize(
    ("kind", "asked", "size", "expected"),
    [
        ("bpe", None, 300_000, 300_000 // 128),
        ("bpe", None, 10, 512),
        ("bpe", None, 10**9, 50_257),
        ("wordpiece", None, 10**9, 30_522),
        ("bpe", 300, 10**9, 300),
        ("words", None, 10**9, None),
    ],
)
def test_default_vocabulary_depends_on_text_size(monkeypatch, kind, asked, size, expected):
    class Learned:
        pass

    def learn(kind, texts, vocabulary):
        Learned.size, Learned.asked = vocabulary or 7, vocabulary
        return Learned

    monkeypatch.setattr(sources, "train_tokenizer", learn)
    config = DataConfig(source="x", tokenizer=kind, vocabulary=asked)
    found, notes = sources.tokenizer_for(config, lambda: ["a text"], size)
    assert found.asked == expected
    said = asked is None and expected is not None
    assert len(notes) == said
    assert not said or f"{expected:,} tokens, chosen for a text of {size:,} bytes" in notes[0]
    assert sources.tokenizer_for(config, lambda: ["a text"], size, tokenizer=found) == (found, ())


def test_unknown_source_suggests_similar_corpus():
    with pytest.raises(ValueError, match="did you mean the corpus 'enwik8'"):
        sources.texts(DataConfig(source="enwik"), DataFolders(), 16)
