import lzma

from clearformer.compressor import peers
from clearformer.compressor.peers import peer_sizes


def test_sizes_match_other_compressors(text):
    sizes = peer_sizes(text)
    assert sizes["xz -9e"] == len(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    assert all(0 < size < len(text) for size in sizes.values())


def test_omits_compressors_that_are_not_installed(text, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(peers.importlib, "import_module", missing)
    monkeypatch.setattr(peers.shutil, "which", lambda name: None)
    assert list(peer_sizes(text)) == ["xz -9e"]


def test_omits_xz_without_memory(text, monkeypatch):
    def full(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(peers.lzma, "compress", full)
    assert "xz -9e" not in peer_sizes(text)
