"""The page's sizes: one scale of type and one of distances."""

import re
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "web" / "src"
SHEETS = sorted(path for path in WEB.rglob("*") if path.suffix in {".css", ".svelte"})
DISTANCES = {0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64}
SPACING = r"(?:(?:row-|column-)?gap|(?:padding|margin)(?:-\w+)?)"


def declarations(path, names):
    """(name, value) of the declarations of a style sheet, or of a component's own styles."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".svelte":
        text = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
    return re.findall(rf"(?m)^\s*({names}):\s*([^;]+);", text)


@pytest.mark.parametrize("path", SHEETS, ids=lambda path: path.name)
def test_sizes_and_distances_are_of_the_scale(path):
    sizes = declarations(path, "font(?:-size)?")
    assert [each for each in sizes if re.search(r"(?<!/)\b\d[\d.]*(?:px|rem|pt)", each[1])] == []
    lengths = [
        (name, value)
        for name, value in declarations(path, SPACING)
        if {float(each) for each in re.findall(r"([\d.]+)px", value)} - DISTANCES
    ]
    assert lengths == []


def test_styles_are_found():
    """So that the test above compares something."""
    assert len(declarations(WEB / "app.css", SPACING)) > 10
    assert sum(len(declarations(path, "font(?:-size)?")) for path in SHEETS) > 50
