"""Figures of the book: readable on light and dark pages."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from clearformer.learn import figures

PAGES = {"light": "#ffffff", "dark": "#14181e"}  # of pydata-sphinx-theme


def luminance(colour):
    """Relative luminance as WCAG 2 defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("page", PAGES)
def test_colours_have_sufficient_contrast(page):
    assert contrast(figures.TEXT, PAGES[page]) >= 4
    for colour in figures.COLOURS:
        assert contrast(colour, PAGES[page]) >= 3, colour


def test_figures_have_transparent_background():
    with matplotlib.rc_context():
        figures.use_style()
        figure, axes = plt.subplots()
        figures.table(axes, torch.tensor([[0.25, 0.75]]), ["a"], ["b", "c"])
        figure.canvas.draw()
        corner = np.asarray(figure.canvas.buffer_rgba())[0, 0]
        plt.close(figure)
    assert corner[3] == 0
    assert [text.get_text() for text in axes.texts] == ["0.25", "0.75"]
    assert [text.get_color() for text in axes.texts] == ["white", "black"]
