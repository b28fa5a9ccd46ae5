"""`clearformer reach`: numbers, a picture, and errors."""

import pytest


def test_three_strided_layers_reach_every_position(clearformer, tmp_path):
    picture = tmp_path / "reach.png"
    done = clearformer(
        "reach", "strided", "--length", "64", "--layers", "3", "--picture", str(picture)
    )
    assert done.code == 0, done.err
    assert "after 3 layers the last of 64 positions can be changed by 64 of them" in done.out
    assert "layers 1 to 1: 8 positions reach the last" in done.out
    assert picture.stat().st_size > 1000


def test_default_picture_name(clearformer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = clearformer("reach", "causal", "--picture", "--length", "4")
    assert "picture: reach.png" in done.out
    assert (tmp_path / "reach.png").exists()


def test_memory_extends_reach(clearformer):
    done = clearformer("reach", "xl-tiny", "--length", "8", "--layers", "2", "--memory", "4")
    assert "the last of 8 positions can be changed by 8 of them and 8 before them" in done.out


@pytest.mark.parametrize("name", ["causal", "local", "merged", "heads", "fixed", "sparse-small"])
def test_accepts_every_pattern_and_preset(clearformer, name):
    done = clearformer("reach", name)
    assert done.code == 0, done.err
    assert "positions can be changed by" in done.out


def test_reports_long_stride(clearformer):
    done = clearformer("reach", "strided", "--length", "16", "--stride", "20")
    assert "note: Causal & Strided(20): 20 is longer than the sequence of 16" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("stridet",), "strided"),
        (("strided", "--length", "0"), "length is 0, but it must be at least 1"),
        (("strided", "--layers", "-1"), "layers is -1, but it must be at least 1"),
        (("strided", "--layers", "0"), "layers is 0, but it must be at least 1"),
        (("strided", "--layers", "9999"), "layers is 9999, but it must be at most 256"),
        (("xl-tiny", "--layers", "0"), "layers is 0, but it must be at least 1"),
        (("causal", "--memory", "-1"), "memory is -1, but it must be at least 0"),
        (("causal", "--length", "9999"), "a table of all pairs is drawn for up to 4,096"),
        (("strided", "--stride", "0"), "window is 0, but it must be at least 1"),
        (("sparse-small", "--stride", "3"), "--stride is for patterns by name"),
        (("strided", "--picture", "x.txt"), "must end in one of .png, .svg, .pdf"),
    ],
)
def test_errors_are_one_line(clearformer, arguments, message):
    assert message in clearformer("reach", *arguments).complaint
