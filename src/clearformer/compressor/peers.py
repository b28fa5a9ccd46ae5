"""Sizes of a file under general compressors: xz -9e, zstd -19, brotli -11, where installed."""

from __future__ import annotations

import importlib
import lzma
import shutil
import subprocess

ZSTD_LEVEL = 19


def peer_sizes(data: bytes) -> dict[str, int]:
    """Compressed bytes by the name of the compressor.

    Those that are not installed or run out of memory are left out: xz -9e takes 0.7 GB.
    """
    sizes = {
        "xz -9e": _xz(data),
        "zstd -19": _zstd(data),
        "brotli -11": _brotli(data),
    }
    return {name: size for name, size in sizes.items() if size is not None}


def _xz(data: bytes) -> int | None:
    try:
        return len(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    except MemoryError:
        return None


def _zstd(data: bytes) -> int | None:
    try:
        library = importlib.import_module("zstandard")
        return len(library.ZstdCompressor(level=ZSTD_LEVEL).compress(data))
    except ImportError:
        return _command(["zstd", f"-{ZSTD_LEVEL}", "-c", "-q"], data)


def _brotli(data: bytes) -> int | None:
    try:
        return len(importlib.import_module("brotli").compress(data))
    except ImportError:
        return _command(["brotli", "-q", "11", "-c"], data)


def _command(words: list[str], data: bytes) -> int | None:
    """The size of a program's output; None without the program."""
    if shutil.which(words[0]) is None:
        return None
    done = subprocess.run(words, input=data, capture_output=True, check=False)
    return len(done.stdout) if done.returncode == 0 else None
