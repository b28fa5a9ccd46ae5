"""`clearformer compress FILE --model RUN` and `clearformer decompress FILE.cf`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from clearformer.cli.generated import note
from clearformer.cli.output import say, write_json
from clearformer.cli.tables import require_place

if TYPE_CHECKING:
    from torch import nn

    from clearformer.compressor.codec import Compressed
    from clearformer.compressor.online import Online

ENDING = ".cf"


@dataclass(frozen=True)
class Compress:
    """Compress a file with a language model, losslessly."""

    file: tyro.conf.Positional[Path]
    """What to compress: any file, text or not."""
    model: str
    """A run (what --out named in train), a Hugging Face folder, or an exported file;
    with --from-scratch a preset, such as modern-tiny."""
    out: Path | None = None
    """Where to write; none: the file's name with .cf."""
    streams: int | None = None
    """Parts that are coded side by side: more is faster, and costs some bytes for each; none: one
    for every 4,096 tokens, at most 32."""
    context: int | None = None
    """Tokens that a prediction may use; none: the model's length."""
    stride: int | None = None
    """Tokens between two windows, smaller is slower and better; none: half the context."""
    threads: int | None = None
    """Threads of torch; decompress uses as many. None: torch's current setting."""
    online: bool = False
    """Train the model while coding, in the encoder and in the decoder."""
    learning_rate: float | None = None
    """Learning rate of --online; none: 5e-4, from scratch 0.01 (Muon)."""
    from_scratch: bool = False
    """Start from the initial weights of a preset, so that no weights have to be shipped; needs
    --online."""
    seed: int = 0
    """Seed of these initial weights."""
    counts: int | None = None
    """Mix the predictions with counts of what followed the last 1 to this many tokens so far in the
    file, at most 8; none: 6 with --from-scratch, otherwise 0, no counts."""
    portable: bool = False
    """Compute so that any CPU, version of torch and number of threads decodes the file; slower."""
    json: bool = False
    """Print the figures as one line of JSON."""

    def run(self) -> None:
        from clearformer.compressor.codec import compress
        from clearformer.model import load

        online = self._online()
        out = self.file.with_name(self.file.name + ENDING) if self.out is None else self.out
        _require_new(out, self.file)
        model = None if self.from_scratch else load(self.model)
        note(*(() if model is None else model.notes))
        began = time.monotonic()
        with progress_bar("compressing") as progress:
            packed = compress(
                self.file,
                model or self.model,
                out=out,
                streams=self.streams,
                context=self.context,
                stride=self.stride,
                threads=self.threads,
                online=online,
                from_scratch=self.from_scratch,
                seed=self.seed,
                counts=self.counts,
                portable=self.portable,
                progress=progress,
            )
        seconds = time.monotonic() - began
        module = None if model is None else model.module
        if self.json:
            write_json(document(self.file, out, packed, module, seconds))
            return
        for line in report(self.file, out, packed, module, seconds):
            say(line)

    def _online(self) -> Online | bool:
        from clearformer.compressor.online import Online

        if not self.online:
            if self.learning_rate is not None:
                raise ValueError("--learning-rate is for --online: leave it out, or add --online")
            return False
        usual = Online.from_scratch() if self.from_scratch else Online()
        rate = usual.learning_rate if self.learning_rate is None else self.learning_rate
        return replace(usual, learning_rate=rate)


@dataclass(frozen=True)
class Decompress:
    """Restore a file that `clearformer compress` wrote."""

    file: tyro.conf.Positional[Path]
    """The compressed file."""
    model: str | None = None
    """The model that compressed it; none: the one that the file names."""
    out: Path | None = None
    """Where to write; none: the file's name without .cf."""
    json: bool = False
    """Print the figures as one line of JSON."""

    def run(self) -> None:
        from clearformer.compressor.codec import decompress

        out = self.out
        if out is None:
            if self.file.suffix != ENDING:
                raise ValueError(f"{self.file} does not end in {ENDING}: say where to write, --out")
            out = self.file.with_suffix("")
        _require_new(out, self.file)
        began = time.monotonic()
        with progress_bar("decompressing") as progress:
            decompress(self.file, self.model, out=out, progress=progress)
        size, seconds = out.stat().st_size, time.monotonic() - began
        if self.json:
            write_json({"out": str(out), "bytes": size, "seconds": seconds})
            return
        say(f"{out}: {size:,} bytes, the hash is right; {size / max(seconds, 1e-9):,.0f} bytes/s")


def report(
    file: Path, out: Path, packed: Compressed, module: nn.Module | None, seconds: float
) -> Iterator[str]:
    """Sizes of the file, of the weights and of other compressors, and bits by position."""
    from clearformer.compressor.accounting import accounts
    from clearformer.compressor.curve import bits_by_part

    length = packed.header.length
    speed = length / max(seconds, 1e-9)
    yield (
        f"{file}: {length:,} bytes; {out}: {packed.size:,} bytes, {packed.bits_per_byte:.4f} bits "
        f"per byte, {packed.header.streams} streams, {speed:,.0f} bytes/s"
    )
    if packed.raw_size:
        yield (
            f"note: the tokenizer cannot restore {packed.raw_size:,} of these bytes; they are "
            f"stored by LZMA, without the model"
        )
    if packed.header.online is not None:
        yield from bits_by_part(packed.curve)
    yield from accounts(file.read_bytes(), packed, module)


def document(
    file: Path, out: Path, packed: Compressed, module: nn.Module | None, seconds: float
) -> dict[str, Any]:
    """The figures of the report as JSON."""
    from clearformer.compressor.accounting import sizes

    header = packed.header
    found = {
        "file": str(file),
        "out": str(out),
        "bytes": header.length,
        "compressed": packed.size,
        "raw": packed.raw_size,
        "bits_per_byte": packed.bits_per_byte,
        "streams": header.streams,
        "sizes": sizes(file.read_bytes(), packed, module),
        "seconds": seconds,
    }
    return found if header.online is None else {**found, "curve": packed.curve}


def _require_new(out: Path, source: Path) -> None:
    require_place(out, source)
    if out.exists() or out.is_symlink():
        raise ValueError(f"{out} already exists: delete it, or choose another file with --out")


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar in a terminal; nothing elsewhere."""
    if not sys.stdout.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from clearformer.cli.tables import Terminal

    numbers = TextColumn("{task.percentage:3.0f}%  {task.description}", markup=False)
    bar = Progress(BarColumn(bar_width=30), numbers, TimeRemainingColumn(), console=Terminal())
    row = bar.add_task(what, total=None)
    with bar:
        yield lambda done, total: bar.update(row, completed=done, total=total)
