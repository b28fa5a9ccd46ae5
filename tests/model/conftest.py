"""A trained model of each kind, for the tests of this folder."""

import pytest

import clearformer as cf

TINY = {"length": 24, "layers": 1, "width": 16, "heads": 2, "model.hidden": 32, "threads": 1,
        "quiet": True}  # fmt: skip


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder with a trained model of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)
        text = folder / "mine.txt"
        text.write_text("\n".join(f"{i} bottles of ale on the wall." for i in range(300)))
        labelled = [(f"{w} film number {i}", w) for i in range(12) for w in ("good", "bad")]
        pairs = [(f"one {i}", f"eins {i}") for i in range(40)]
        shared = {**TINY, "batch_size": 4, "steps": 6}
        cf.train("modern-tiny", data=text, out="generator", key_heads=1, **shared)
        cf.train("classifier-imdb", data=labelled, out="classifier", **shared)
        cf.train("bert-mini-masked", data=text, out="masked", **{**shared, "data.vocabulary": 280})
        cf.train(
            "original-tiny",
            data=pairs,
            out="translator",
            **{**TINY, "steps": 6, "decoder_layers": 1, "batch_tokens": 256},
        )
    return folder


@pytest.fixture
def generator(runs):
    return cf.load(runs / "generator")
