"""The README that is written into a run folder."""

from dataclasses import replace

from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.data import DataFolders
from clearformer.families import generator
from clearformer.runs.card import card
from clearformer.runs.run import Run


def test_card_contains_metrics_of_run(tmp_path):
    source = tmp_path / "text.txt"
    source.write_text("words to learn from\n" * 100)
    config = RunConfig(
        model=replace(generator(), length=16, layers=1, width=16, heads=2, hidden=32),
        data=DataConfig(source=str(source)),
        train=TrainConfig(learning_rate=1e-2, batch_size=4, steps=2, evaluations=1, threads=1),
    )
    run = Run(config, tmp_path / "mine", DataFolders(cache=tmp_path))
    assert "not evaluated" in card(run)
    list(run.events())
    text = card(run)
    assert f"bits per byte {run.state.best['value']:.4f} at step 2" in text
    assert f'clearformer generate {tmp_path / "mine"} "Once"' in text  # from any folder


def test_card_escapes_markup_in_names(tmp_path):
    """A file may be called anything; in the card it is one line, and neither markup nor HTML."""
    source = tmp_path / "<img src=x>[a](b)`\n# forged\x1b.txt"
    source.write_text("words to learn from\n" * 100)
    config = RunConfig(
        model=replace(generator(), length=16, layers=1, width=16, heads=2, hidden=32),
        data=DataConfig(source=str(source)),
        train=TrainConfig(learning_rate=1e-2, batch_size=4, steps=2, evaluations=1, threads=1),
    )
    text = card(Run(config, tmp_path / "a; b\n$(c)", DataFolders(cache=tmp_path)))
    title = text.splitlines()[0]
    assert title.endswith(r"on \<img src=x\>\[a\](b)\`\\n\# forged\\x1b.txt")
    assert f"    clearformer evaluate '{tmp_path}/a; b\\n$(c)'\n" in text  # quoted for a shell
