import io
import random
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clearformer.compressor import pages
from clearformer.compressor.pages import restore, tokenize
from clearformer.text import BytePairs, Bytes, Characters, WordPieces, Words


@pytest.fixture(scope="module")
def tokenizers(prose):
    return [
        Bytes(),
        Characters.train([prose]),
        Words.train([prose]),
        BytePairs.train([prose], 300),
        WordPieces.train([prose], 400),
    ]


def files(strange_texts):
    chance = random.Random(0)
    yield from (b"", b"\0", b"\xff", b"ab", b"\xc3", "ä".encode(), b"a" * 1000)
    yield chance.randbytes(3000)
    yield "\n".join(strange_texts[:60]).encode()
    yield b"plain text before\n" * 40 + chance.randbytes(300) + b"\nplain text after\n" * 40


def test_round_trip_of_any_bytes_with_any_tokenizer(tokenizers, strange_texts):
    for tokenizer in tokenizers:
        for data in files(strange_texts):
            found = tokenize(data, tokenizer)
            assert b"".join(restore(found, tokenizer)) == data, (tokenizer.kind, data[:40])


def test_plain_text_has_no_raw_bytes(tokenizers, prose, monkeypatch):
    monkeypatch.setattr(pages, "PAGE", 500)
    data = prose.encode()[:4000]
    for tokenizer in tokenizers:
        if tokenizer.kind in ("bytes", "characters", "bpe"):
            found = tokenize(data, tokenizer)
            assert found.raw == 0
            assert b"".join(restore(found, tokenizer)) == data


def test_only_lossy_parts_are_raw(tokenizers):
    data = b"plain text\n" * 100 + b"\xff\xfe" * 30 + b"\nplain text" * 100
    bpe = next(each for each in tokenizers if each.kind == "bpe")
    assert 60 <= tokenize(data, bpe).raw <= 60 + 2 * pages.SHORTEST


def test_rejects_invalid_page_tables(tokenizers):
    bpe = next(each for each in tokenizers if each.kind == "bpe")
    found = tokenize(b"some text\n" * 60 + b"\xff" * 9, bpe)
    fewer = replace(found, tokens=np.concatenate((found.tokens, found.tokens)))
    for wrong in (replace(found, table=b"nonsense"), replace(found, table=b""), fewer):
        with pytest.raises(ValueError, match=r"^the page table "):
            list(restore(wrong, bpe))


def peak(work):
    """Bytes that a call has allocated at its peak."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("part", [b"plain text\n", b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe"])
def test_a_file_is_held_in_memory_once(part, tokenizers, tmp_path, monkeypatch):
    """Nearly all of it as tokens, or nearly all as bytes that no token restores."""
    monkeypatch.setattr(pages, "PAGE", 2**14)
    monkeypatch.setattr(pages._Parts, "table", lambda parts: b"")  # LZMA has its own memory
    size = 2**20
    path = tmp_path / "file"
    path.write_bytes(part * (size // len(part)))
    for tokenizer in (each for each in tokenizers if each.kind in ("bytes", "characters")):
        packed = []
        with path.open("rb") as file:
            needed = peak(lambda: packed.append(tokenize(file, tokenizer)))  # noqa: B023
        held = packed[0].tokens.nbytes + packed[0].raw
        assert size // 2 < held
        assert needed < 1.4 * held, tokenizer.kind


# The memory of the library `tokenizers`, which `tracemalloc` does not see, in a process of its own,
# since another one has freed memory to use again.
GROWTH = """
import io, random
from pathlib import Path
from clearformer.compressor.pages import restore, tokenize
from clearformer.text import BytePairs

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))

chance = random.Random(0)
words = ["".join(chance.choices("abcdefgh", k=chance.randint(2, 8))) for _ in range(2000)]
data = " ".join(chance.choices(words, k=200_000)).encode()
tokenizer = BytePairs.train([data[:50_000].decode()], 500)
before = peak()
found = tokenize(io.BytesIO(data), tokenizer)
assert sum(map(len, restore(found, tokenizer))) == len(data) > 10**6
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_tokenizing_needs_little_memory_beside_the_tokens():
    """In one piece this megabyte takes more than 100 MB."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 50 * 2**20


def test_open_file_and_bytes_give_the_same_pages(tokenizers, monkeypatch, strange_texts):
    monkeypatch.setattr(pages, "PAGE", 100)
    for tokenizer in tokenizers:
        for data in files(strange_texts):
            one, two = tokenize(data, tokenizer), tokenize(io.BytesIO(data), tokenizer)
            assert (one.tokens.tolist(), one.table) == (two.tokens.tolist(), two.table)
            assert one.length == len(data)
            assert b"".join(restore(one, tokenizer)) == data
