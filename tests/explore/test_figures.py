"""Figures show the exact numbers."""

import torch

from clearformer.core.patterns import Causal
from clearformer.explore import figures, views
from clearformer.explore.trace import trace
from clearformer.explore.trace_cache import TraceCache


def test_pattern_figure_matches_table():
    figure = figures.pattern(Causal(), 6, "causal")
    (axes,) = figure.axes
    drawn = torch.as_tensor(axes.images[0].get_array().data)
    assert torch.equal(drawn, torch.ones(6, 6).tril())


def test_ladder_figure_shows_numbers_and_infinity():
    scores = torch.tensor([[1.5, float("-inf")], [-0.25, 2.0]])
    figure = figures.ladder([("masked", scores), ("weights", torch.eye(2))], ["a", "b"])
    masked, weights = figure.axes
    assert [text.get_text() for text in masked.texts] == ["1.50", "−∞", "−0.25", "2.00"]
    assert masked.images[0].get_clim() == (-2.0, 2.0)
    assert weights.images[0].get_clim() == (0.0, 1.0)
    assert [label.get_text() for label in masked.get_xticklabels()] == ["a", "b"]


def test_svg_keeps_text(tmp_path):
    figures.save(figures.pattern(Causal(), 4, "a title"), tmp_path / "p.svg")
    assert "a title" in (tmp_path / "p.svg").read_text()


def test_alignment_figure_has_token_labels(tmp_path):
    drawing = figures.alignment(torch.rand(2, 3), ["a$", " b"], ["x", "y", "z"], "t" * 80)
    (axes,) = drawing.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a\\$", "·b"]
    assert len(axes.get_xticklabels()) == 3
    assert len(axes.get_title()) == 60
    figures.save(drawing, tmp_path / "a.svg")
    assert "<svg" in (tmp_path / "a.svg").read_text()


def test_head_figure_uses_limits_of_page(loaded, tmp_path):
    cached = TraceCache().add(loaded("gpt2"), "the cat sat\n$1", {})
    found = trace(cached.loaded.model, cached.tokens)
    page = views.attention(cached, 1, 1, "weights", None)
    drawing = figures.attention(found, 1, 1)
    image = drawing.axes[0].images[0]
    assert image.get_clim() == (page["min"], page["max"])
    assert torch.equal(torch.as_tensor(image.get_array().data), found.get("weights", 1, 1))
    for name in ("head.svg", "head.pdf"):
        figures.save(drawing, tmp_path / name)
    assert ">cat<" in (tmp_path / "head.svg").read_text()  # text is text
    assert b"/FontFile2" in (tmp_path / "head.pdf").read_bytes()  # TrueType, not outlines


def test_names_are_not_parsed_as_mathtext(tmp_path):
    """`$` begins a formula in matplotlib, and a broken one ends the drawing of a run's curve."""
    name = "$\\frac{$ \x1b[2J\n"
    records = [
        {"event": "step", "step": 1, "train_loss": 2.0},
        {
            "event": "evaluation",
            "step": 1,
            "validation_loss": 2.0,
            "validation_accuracy": 0.5,
        },
    ]
    drawings = {
        "curve": figures.curve(records, "accuracy", name),
        "pattern": figures.pattern(Causal(), 4, name),
        "reach": figures.reach(torch.eye(3), name),
        "ladder": figures.ladder([("weights", torch.eye(2))], [name, "b"], name),
        "alignment": figures.alignment(torch.rand(1, 1), [name], [name], name),
    }
    for each, drawing in drawings.items():
        figures.save(drawing, tmp_path / f"{each}.svg")
        shown = (tmp_path / f"{each}.svg").read_text()
        assert r"$\frac{$" in shown
        assert r"\x1b[2J" in shown
        assert "\x1b" not in shown  # which no XML may have


def test_png_bytes_equal_saved_file(tmp_path):
    records = [{"event": "step", "step": step, "train_loss": 2.0 / step} for step in (1, 2)]
    drawing = figures.curve(records, "loss")
    assert figures.png(drawing).startswith(b"\x89PNG")
    figures.save(drawing, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes() == figures.png(drawing)
