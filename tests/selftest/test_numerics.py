"""G11, G17 and G19."""

import pytest

from clearformer.selftest import numerics
from clearformer.selftest.processes import Missed


def test_f18_g11_accumulation_does_not_change_gradients(tmp_path):
    assert "accumulation 2/8" in numerics.gradients(tmp_path, cuts=(2, 8))


def test_g11_fails_with_a_mean_of_means(tmp_path, monkeypatch):
    whole = numerics._gradient
    naive = numerics._naive
    monkeypatch.setattr(
        numerics,
        "_gradient",
        lambda m, b, parts: whole(m, b, 1) if parts == 1 else naive(m, b, parts),
    )
    with pytest.raises(Missed, match="gradients differ by"):
        numerics.gradients(tmp_path, cuts=(8,))


def test_g17_attention_memory_is_linear_in_length(tmp_path):
    assert "times" in numerics.memory(tmp_path, length=1024)


def test_g19_device_is_close_to_float64(tmp_path):
    assert "of float64" in numerics.float32(tmp_path, models=("gpt2",))
