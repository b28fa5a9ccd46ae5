"""Every example in reduced form: it runs, and its effect is visible."""

import importlib.util
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def digits():
    pytest.importorskip(
        "sklearn", reason="the digits are scikit-learn's: pip install '.[examples]'"
    )


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short(path):
    assert len(path.read_text().splitlines()) < 100


def test_sets_example_is_permutation_invariant():
    found = example("sets").main(steps=60)
    assert found["accuracy"] > 0.3
    assert found["moved"] < 1e-5


def test_graphs_example_needs_edges():
    found = example("graphs").main(steps=25)
    assert found["with edges"]["nodes"] > found["without edges"]["nodes"] + 0.15


def test_graphs_of_different_sizes_are_independent():
    graphs = example("graphs")
    import random

    from clearformer.builder import build

    chance = random.Random(3)
    several = [graphs.example(chance) for _ in range(4)]
    model = build(graphs.model_config()).eval()
    colours, attention_mask, _, _, structure = graphs.batch(several)
    together = model.hidden(colours, attention_mask, structure=structure)
    for row, one in enumerate(several):
        own, own_attention_mask, _, _, own_structure = graphs.batch([one])
        alone = model.hidden(own, own_attention_mask, structure=own_structure)
        torch.testing.assert_close(together[row, : one[0].nodes], alone[0])


def test_digits_example_classifies(digits):
    assert example("digits").main(epochs=4) > 0.6


def fewer(module, monkeypatch, count):
    """A subset of the digits, so that the test takes seconds."""
    whole = module.sequences
    monkeypatch.setattr(module, "sequences", lambda *name: tuple(x[:count] for x in whole(*name)))


def test_paint_example_generates(digits, monkeypatch):
    paint = example("paint")
    fewer(paint, monkeypatch, 320)
    pictures, _ = paint.main(epochs=1)
    assert pictures.shape == (100, 64)
    assert int(pictures.max()) < paint.SHADES
    known, labels = paint.sequences()
    assert paint.recognised(known[:50, 1:], labels[:50]) == 1.0


def test_paint_pattern_sees_row_column_and_class(digits):
    """A distant pixel in another row and column has no effect in one layer."""

    paint = example("paint")
    table = paint.model_config().patterns[0].table(65, 65)
    row = table[1 + 8 * 5 + 3]  # the pixel in line 5, column 3
    seen = {divmod(int(place) - 1, 8) for place in row.nonzero() if place > 0}
    assert seen == {(5, 0), (5, 1), (5, 2), (5, 3), *((line, 3) for line in range(5))}
    assert row[0]


@pytest.mark.parametrize("name", ["read", "paint"])
def test_captions_example_uses_one_sequence(digits, name, monkeypatch):

    captions = example("captions")
    fewer(captions, monkeypatch, 428)
    assert 0 <= captions.main(name, epochs=1) <= 1
    table = captions.model_config(name).patterns[0].table(70, 70)
    letters, pixels = (
        (slice(0, 6), slice(6, 70)) if name == "paint" else (slice(64, 70), slice(0, 64))
    )
    if name == "paint":
        assert table[pixels, letters].all()
        assert not table[letters, pixels].any()
    else:
        assert table[letters, pixels].all()
        assert not table[pixels, letters].any()


def test_sailor_example_judges_answers_it_was_not_trained_on():
    sailor = example("sailor")
    every = sailor.conversations()
    assert len(set(every)) == 400

    class Model:
        """Answers every question about the sea, and calls everyone Ann."""

        def chat(self, messages, **settings):
            return "Ahoy Ann! The sea be grand, arr."

    pairs = [("a", "Ahoy Ann! The sea be grand, arr."), ("b", "Ahoy Bob! The sea be grand, arr.")]
    found = sailor.shares(Model(), pairs)
    assert found == {"style": 1, "name": 0.5, "thing": 1, "word": 1, "right": 0.5}
