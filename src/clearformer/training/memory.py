"""Memory sizes: parsing, formatting, and what is available."""

from __future__ import annotations

import re
from pathlib import Path

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "K": 10**3, "M": 10**6}
UNITS |= {"G": 10**9, "T": 10**12}
MAX_BYTES = 10**18


def parse_bytes(text: str) -> int:
    """Bytes of "12GB", "500 MB" or "4GiB"."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    unit = None if match is None else UNITS.get(match[2].upper())
    if match is None or unit is None or not float(match[1]) * unit >= 1:
        raise ValueError(f"{text!r:.60} is not a memory size: write it as 12GB, 500MB or 4GiB")
    if float(match[1]) * unit > MAX_BYTES:
        raise ValueError(f"{text!r:.60} is too much memory: write at most 1000000TB")
    return round(float(match[1]) * unit)


def format_bytes(count: float) -> str:
    """Bytes with a unit and about three digits; the reverse of `parse_bytes`."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if count >= unit:
            if count >= 99.95 * unit:
                return f"{count / unit:.0f} {name}"
            text = f"{count / unit:.{2 if count < 9.995 * unit else 1}f}"
            return f"{text[:-1] if text.endswith('0') and text[-3] == '.' else text} {name}"
    return f"{count / 1000:.1f} KB"


def available_bytes() -> int | None:
    """Memory that this machine has left; None if it does not say."""
    try:
        match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return None if match is None else int(match[1]) * 1024
