import pytest

from clearformer.compressor import curve
from clearformer.compressor.codec import compress
from clearformer.compressor.curve import Curve, bits_by_part
from clearformer.compressor.proof import claim


def test_a_point_for_each_part():
    found = Curve(450_000, 100)
    for tokens in range(0, 101, 5):
        found(tokens, 8.0 * tokens)
    assert found.points == [
        (112_500, 200.0), (202_500, 360.0), (315_000, 560.0), (405_000, 720.0)
    ]  # fmt: skip
    lines = [line.split() for line in bits_by_part(found.points)]
    assert [" ".join(line) for line in lines[:2]] == [
        "0 to 112,500 bytes: 0.0018 bits", "112,500 to 202,500 bytes: 0.0018 bits",
    ]  # fmt: skip


def test_padding_is_not_read():
    """The last step of a claim counts a token of every stream, also of those that have ended."""
    found = Curve(99_999, 10)
    found(12, 8.0)
    assert found.points == []


@pytest.mark.parametrize("options", [{}, {"online": True}])
def test_code_and_claim_have_the_same_curve(byte_model, text, monkeypatch, options):
    monkeypatch.setattr(curve, "STEP", 100)
    model = byte_model()
    coded = compress(text, model, streams=2, **options).curve
    claimed = claim(model, text, streams=2, **options).curve
    assert [place for place, _ in coded] == [100, 200, 300, 400, 500, 600]
    assert [place // 100 for place, _ in claimed] == [1, 2, 3, 4, 5, 6]  # once a window
    for (place, bits), (near, expected) in zip(claimed, coded, strict=True):
        assert bits / place == pytest.approx(expected / near, rel=0.1)
