"""API keys: how they must look, where they come from, and that comparing takes constant time."""

import secrets

import pytest
from starlette.datastructures import Headers

from clearformer.serve.api_keys import ApiKeys, read_keys, require_keys

KEY = "a-key-that-is-long-enough"


def test_rejects_invalid_keys():
    for key in ("short", "with space at the end ", "ümläut-ümläut-ümläut"):
        with pytest.raises(ValueError, match=r"API key 1 has \d+ characters, but it must have"):
            ApiKeys([key])


def test_reads_one_key_per_line(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"{KEY}\n\n  {KEY}2 \n")
    assert read_keys(path) == [KEY, f"{KEY}2"]
    path.write_text("\n")
    with pytest.raises(ValueError, match="has no API key: write one on each line"):
        read_keys(path)


def test_public_host_requires_a_key():
    require_keys("127.0.0.1", [])
    require_keys("0.0.0.0", [KEY])
    with pytest.raises(ValueError, match=r"host is 0\.0\.0\.0, which other machines can reach"):
        require_keys("0.0.0.0", [])


def test_keys_are_compared_in_constant_time(monkeypatch):
    """Whatever was sent, the same comparisons of equally long values are made."""
    keys = ApiKeys([KEY, f"{KEY}2", f"{KEY}3"])
    compared, real = [], secrets.compare_digest

    def counting(one, other):
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(secrets, "compare_digest", counting)
    for sent in (KEY, f"{KEY}3", "x", "", "y" * 5000, "ü"):
        compared.clear()
        headers = Headers({"authorization": f"Bearer {sent}"})
        refusal = keys({"path": "/v1/models"}, headers)
        assert compared == [(32, 32)] * 3
        assert (refusal is None) == sent.startswith(KEY)
