import lzma

from clearformer.compressor import peers
from clearformer.compressor.peers import peer_sizes


def test_sizes_are_those_of_the_compressors(text):
    sizes = peer_sizes(text)
    assert sizes["xz -9e"] == len(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    assert all(0 < size < len(text) for size in sizes.values())


def test_what_is_not_installed_is_left_out(text, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(peers.importlib, "import_module", missing)
    monkeypatch.setattr(peers.shutil, "which", lambda name: None)
    assert list(peer_sizes(text)) == ["xz -9e"]
