"""Locating a checkpoint: a local path, or a name on the hub."""

import sys
import types

import pytest

from clearformer.hub.fetch import locate_checkpoint


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The hub's library, without the hub."""
    asked = []

    def snapshot_download(name, revision=None, allow_patterns=None):
        asked.append((name, revision, allow_patterns))
        if name == "no/such":
            raise RuntimeError("404: not found\nand a long story")
        return str(tmp_path)

    library = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    return asked


def test_prefers_local_path(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert locate_checkpoint("gpt2").resolve() == tmp_path / "gpt2"
    assert hub == []


def test_downloads_from_hub_without_code_files(hub, tmp_path):
    assert locate_checkpoint("openai-community/gpt2", "abc") == tmp_path
    (name, revision, patterns), = hub  # fmt: skip
    assert (name, revision) == ("openai-community/gpt2", "abc")
    assert not any(pattern.endswith((".py", ".bin", "*")) for pattern in patterns)
    locate_checkpoint("openai-community/gpt2", allow_bin=True)
    assert "pytorch_model.bin" in hub[1][2]


def test_hub_error_is_one_line(hub):
    with pytest.raises(ValueError, match=r"and the hub did not give it: 404: not found$"):
        locate_checkpoint("no/such")


@pytest.mark.parametrize("name", ["/no/such/folder", "a/b/c", "../x", "./gpt2x", "", "a b"])
def test_invalid_name_makes_no_request(hub, name, tmp_path, monkeypatch):
    inside = tmp_path / "empty"
    inside.mkdir()
    monkeypatch.chdir(inside)
    with pytest.raises(ValueError, match="there is no folder or file"):
        locate_checkpoint(name)
    assert hub == []


def test_missing_huggingface_hub_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"huggingface_hub must be installed: pip install 'clear"):
        locate_checkpoint("openai-community/gpt2")
