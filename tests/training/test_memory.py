"""Memory sizes: parsing, formatting, and available memory."""

import pytest

from clearformer.training import memory


def test_parse_and_format_bytes():
    assert memory.parse_bytes("12GB") == 12 * 10**9
    assert memory.parse_bytes(" 1.5 gib") == 3 * 2**29
    assert memory.parse_bytes("500MB") == 5 * 10**8
    assert [memory.format_bytes(n) for n in (1.5e9, 4e6, 2.5e14)] == ["1.5 GB", "4.0 MB", "250 TB"]
    for wrong in ("much", "12XB", "-1GB", "0", ""):
        with pytest.raises(ValueError, match="not a memory size: write it as 12GB"):
            memory.parse_bytes(wrong)
    assert memory.parse_bytes("1000000TB") == 10**18
    for large in ("9" * 400 + "GB", "1000001TB"):
        with pytest.raises(ValueError, match="is too much memory: write at most 1000"):
            memory.parse_bytes(large)
    with pytest.raises(ValueError, match="not a memory size") as problem:
        memory.parse_bytes("x" * 10_000)
    assert len(str(problem.value)) < 200


def test_available_bytes():
    available = memory.available_bytes()
    assert available is None or available > 10**7
