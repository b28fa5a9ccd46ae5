"""Values of a header as few bytes: integers, hashes, versions, words and settings.

Integers take seven bits a byte, the lowest first. A version such as 2.13.0+cpu is four bytes, and
the description of a CPU a bit for each word of a table; what has another form is written as text.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any

# Words that describe a CPU, in the order of `environment.cpu`. Never remove or move one: files
# refer to them by their place.
WORDS = (
    "x86_64", "aarch64", "arm64", "AuthenticAMD", "GenuineIntel", "AVX2", "AVX512", "DEFAULT",
    "NO", "sse4_2", "avx", "avx2", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512dq",
    "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
    "asimd", "sve",
)  # fmt: skip
LITERAL = 2**31  # in the bits of the words: the model of the CPU follows as text
FORMS = ("{}.{}.{}", "{}.{}.{}+cpu", "constriction {}.{}.{}")
OTHER_FORM = 255
SETTINGS = ("warmup", "updates", "batch_size")  # of online learning, besides rate and optimizer
OPTIMIZERS = ("adamw", "muon")


class Writer:
    """Appends values to bytes."""

    def __init__(self) -> None:
        self.data = b""

    def number(self, value: int) -> Writer:
        self.data += varint(value)
        return self

    def numbers(self, values: Iterable[int]) -> Writer:
        for value in values:
            self.number(value)
        return self

    def bits(self, *values: tuple[int, int]) -> Writer:
        """Small numbers, each with its count of bits, in one byte."""
        total, place = 0, 0
        for value, bits in values:
            total |= value << place
            place += bits
        self.data += bytes([total])
        return self

    def hash(self, digits: str) -> Writer:
        self.data += bytes.fromhex(digits)
        return self

    def text(self, text: str) -> Writer:
        written = text.encode("utf-8", "surrogatepass")
        self.number(len(written)).data += written
        return self

    def version(self, text: str) -> Writer:
        for index, form in enumerate(FORMS):
            found = re.fullmatch(re.escape(form).replace(r"\{\}", r"(0|[1-9]\d{0,8})"), text)
            if found:
                self.data += bytes([index])
                return self.numbers(map(int, found.groups()))
        self.data += bytes([OTHER_FORM])
        return self.text(text)

    def words(self, text: str) -> Writer:
        """A description of a CPU: known words by their bits, its model by three numbers."""
        known = set(WORDS) & set(text.split(" "))
        mask = sum(1 << index for index, word in enumerate(WORDS) if word in known)
        model = " ".join(word for word in text.split(" ") if word not in known)
        numbers = re.fullmatch(r"(\d{1,9})/(\d{1,9})/(\d{1,9})", model)
        if _described(mask, model) != text:  # words twice, or in another order
            mask, model, numbers = 0, text, None
        self.data += (mask | (0 if numbers else LITERAL)).to_bytes(4, "little")
        return self.numbers(map(int, numbers.groups())) if numbers else self.text(model)

    def settings(self, found: Mapping[str, Any]) -> Writer:
        """The settings of online learning."""
        self.data += struct.pack("<d", found["learning_rate"])
        return self.numbers(
            [OPTIMIZERS.index(found["optimizer"]), *(found[key] for key in SETTINGS)]
        )


class Reader:
    """Reads what `Writer` wrote; ValueError if the bytes end early or a value is too large."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self.data, self.place = data, place

    def take(self, count: int) -> bytes:
        found = self.data[self.place : self.place + count]
        if len(found) < count:
            raise ValueError("it ends too early")
        self.place += count
        return found

    def number(self, name: str, least: int, most: int) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            if shift > 63:
                raise ValueError(f"{name} is too large")
        if not least <= value <= most:
            raise ValueError(f"{name} is {value}")
        return value

    def bits(self, *counts: int) -> list[int]:
        total, found = self.take(1)[0], []
        for count in counts:
            found.append(total & (1 << count) - 1)
            total >>= count
        return found

    def hash(self, digits: int) -> str:
        return self.take(digits // 2).hex()

    def text(self, most: int) -> str:
        return self.take(self.number("the length of a text", 0, most)).decode(
            "utf-8", "surrogatepass"
        )

    def version(self) -> str:
        form = self.take(1)[0]
        if form == OTHER_FORM:
            return self.text(256)
        if form >= len(FORMS):
            raise ValueError("it has a version of an unknown form")
        return FORMS[form].format(*(self.number("a version", 0, 10**9) for _ in range(3)))

    def words(self) -> str:
        mask = int.from_bytes(self.take(4), "little")
        if mask & LITERAL:
            return _described(mask & ~LITERAL, self.text(1024))
        return _described(mask, "/".join(str(self.number("the CPU", 0, 10**9)) for _ in range(3)))

    def settings(self) -> dict[str, Any]:
        (rate,) = struct.unpack("<d", self.take(8))
        optimizer = OPTIMIZERS[self.number("optimizer", 0, len(OPTIMIZERS) - 1)]
        counts = {key: self.number(key, 0, 2**31) for key in SETTINGS}
        return {"learning_rate": rate, **counts, "optimizer": optimizer}


def varint(value: int) -> bytes:
    """An unsigned integer, seven bits a byte, the lowest first."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _described(mask: int, model: str) -> str:
    """The words of a mask, with the model after architecture and maker."""
    known = [word for index, word in enumerate(WORDS) if mask >> index & 1]
    first = sum(word in WORDS[:5] for word in known)
    return " ".join([*known[:first], model, *known[first:]])
