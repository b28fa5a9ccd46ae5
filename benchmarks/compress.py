"""Compression by a model: sizes and ratios of speed, on a text that it has not seen.

    python benchmarks/compress.py RUN [--data FILE] [--start N] [--bytes 300000] [--only NAME ...]

RUN is a trained generator, for example of
`clearformer train modern-tiny --data enwik8 --minutes 30 --data.tokenizer bpe
--data.vocabulary 4096 --model.width 192 --model.heads 3 --model.key-heads 1 --model.hidden 512
--train.batch-size 16`.
Without --data the text is a part of enwik8, which needs CLEARFORMER_DATA: the beginning of its test
part (the last 5 million bytes), or from --start on. Speeds are ratios of CPU seconds of this
process with one thread, since other processes may share the machine.

- size: the file beside xz -9e, and the code beside the entropy that the model claims
- online: the same, learning while coding, with counts, and both
- dynamic: the same entropies by whole windows, faster, and with one optimizer step for a window
- scratch: the entropy with untrained weights, the curve beside xz (`--start 0 --bytes 10000000`)
- portable: how much slower portable arithmetic is
- speed: decoding with 32 streams beside 1, also with nothing read again, and encoding beside
  `evaluate`'s windows; for models that read windows
- damage: 300 damaged files, all refused, nothing written
- kill: SIGKILL at random moments of compress and decompress leaves no half file
"""

import argparse
import gzip
import lzma
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import clearformer as cf
from clearformer.compressor import container
from clearformer.compressor.codec import compress, decompress
from clearformer.compressor.online import Online
from clearformer.compressor.peers import peer_sizes
from clearformer.compressor.proof import claim
from clearformer.compressor.protocols import cut
from clearformer.model import Model

TEST_START = 95_000_000  # of enwik8
DAMAGES, KILLS = 300, 40
SCRATCH_STREAMS, SCRATCH_STEP = 32, 250_000
LEARNING: tuple[dict[str, Any], ...] = (
    {"online": True},
    {"counts": 4},
    {"online": True, "counts": 4},
)


def enwik8(start: int, size: int) -> bytes:
    folder = os.environ.get("CLEARFORMER_DATA")
    if not folder:
        sys.exit("CLEARFORMER_DATA names no folder with enwik8.gz: give --data FILE")
    with gzip.open(Path(folder) / "enwik8.gz") as file:
        file.seek(start)
        return file.read(size)


def size(model: Model, text: bytes) -> None:
    claimed = claim(model, text).bits / 8
    packed = compress(text, model)
    assert decompress(packed.data, model) == text
    print(f"size: {packed.size:,} bytes of {len(text):,}, {packed.bits_per_byte:.4f} bits per byte")
    over = packed.code_size - claimed
    print(f"  the code is {over:+,.0f} bytes ({over / claimed:+.4%}) from the model's entropy")
    print(f"  the whole file {packed.size / claimed - 1:+.4%}, {packed.size - claimed:+,.0f} bytes")
    for name, other in peer_sizes(text).items():
        print(f"  {packed.size / other - 1:+.1%} beside {name}, {other:,} bytes")


def online(model: Model, text: bytes) -> None:
    without = compress(text, model).size
    for options in LEARNING:
        packed = compress(text, model, **options)
        assert decompress(packed.data, model) == text
        change = packed.size / without - 1
        print(f"{options}: {packed.size:,} bytes, {change:+.2%} beside the weights as they are")


def dynamic(model: Model, text: bytes) -> None:
    before = claim(model, text).bits
    print(f"dynamic: {before / len(text):.4f} bits per byte as it is")
    one_step = {"online": Online(learning_rate=1e-3, batch_size=container.MAX_STREAMS)}
    for options in (one_step, *LEARNING):
        bits = claim(model, text, **options).bits
        print(f"  {options}: {bits / len(text):.4f}, {bits / before - 1:+.2%}", flush=True)


def scratch(model: Model, text: bytes) -> None:
    """What the code of `compress --from-scratch` has, within 0.1 %, without coding it."""
    starts, _ = cut(np.frombuffer(text, dtype=np.uint8), SCRATCH_STREAMS)
    printed = 0

    def show(done: int, bits: float) -> None:
        nonlocal printed
        if done // SCRATCH_STEP > printed // SCRATCH_STEP or done == len(text):
            # Streams are read side by side: what was read is the beginning of each.
            share = -(-done // SCRATCH_STREAMS)
            read = b"".join(text[start : start + share] for start in starts)
            other = len(lzma.compress(read, preset=9 | lzma.PRESET_EXTREME))
            size = bits / 8
            print(
                f"  {done:12,}: {size:12,.0f}, xz {other:12,}, {size / other - 1:+.1%}", flush=True
            )
            printed = done

    print("scratch: bytes read, entropy so far in bytes, xz of the same bytes")
    settings = {"streams": SCRATCH_STREAMS, "context": 128, "stride": 128}
    claim("modern-tiny", text, from_scratch=True, online=True, progress=show, **settings)


def portable(model: Model, text: bytes) -> None:
    part = text[: 32 * 1024]
    usual = seconds(lambda: compress(part, model, streams=32))
    exact = seconds(lambda: compress(part, model, streams=32, portable=True))
    print(f"portable: {exact / usual:.1f} times the CPU seconds of the usual arithmetic")


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def speed(model: Model, text: bytes) -> None:
    print("speed, bytes per CPU second; windows of context tokens, stride apart")
    usual = model.config.length
    for context, stride in ((usual, usual // 2), (usual, usual), (64, 64)):
        decoding(model, text, context, stride)
    many = text[: 32 * 1024]
    encode = len(many) / seconds(lambda: compress(many, model, streams=32))
    windows = len(many) / seconds(lambda: claim(model, many, streams=32))
    print(f"  encoding {encode:,.0f}, evaluating {windows:,.0f}: {encode / windows:.0%}")


def decoding(model: Model, text: bytes, context: int, stride: int) -> None:
    """With a stride as long as the context nothing is read again."""
    many, few = text[: 32 * 1024], text[:2048]
    packed = compress(many, model, streams=32, context=context, stride=stride)
    alone = compress(few, model, streams=1, context=context, stride=stride)
    wide = len(many) / seconds(lambda: decompress(packed.data, model))
    narrow = len(few) / seconds(lambda: decompress(alone.data, model))
    print(
        f"  {context}, {stride}: decoding {wide:,.0f} in 32 streams, {narrow:,.0f} in one, "
        f"{wide / narrow:.1f} times; {packed.size:,} bytes",
        flush=True,
    )


def damage(model: Model, text: bytes) -> None:
    data, chance = compress(text[:2000], model).data, random.Random(0)
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        for number in range(DAMAGES):
            wrong = bytearray(data)
            place = chance.randrange(len(wrong))
            if number % 3 == 0:
                wrong[place] ^= 1 << chance.randrange(8)
            elif number % 3 == 1:
                del wrong[place:]
            else:
                wrong[place : place + 4] = chance.randbytes(4)
            try:
                decompress(bytes(wrong), model, out=out)
            except ValueError:
                refused += 1
        assert not list(Path(folder).iterdir())
    print(f"damage: {refused} of {DAMAGES} refused, nothing written")


def kill(model: Model, text: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        packed, back = Path(folder) / "text.cf", Path(folder) / "back"
        part = text[:1500]
        kill_one("compress", lambda: compress(part, model, streams=8, out=packed), packed)
        data = compress(part, model, streams=8).data
        kill_one("decompress", lambda: decompress(data, model, out=back), back)


def kill_one(name: str, work: Callable[[], object], out: Path) -> None:
    """Kill copies of this process while they work: the file is whole or not there."""
    chance, whole = random.Random(0), 0
    work()  # the first time takes longer
    began = time.monotonic()
    work()
    takes = time.monotonic() - began
    expected = out.read_bytes()
    for _ in range(KILLS):
        out.unlink(missing_ok=True)
        child = os.fork()  # it has loaded everything already, so that the kill hits the work
        if not child:
            try:
                work()
            finally:
                os._exit(0)  # whatever happens: the folder and the terminal are the parent's
        time.sleep(takes * chance.uniform(0, 1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert not out.exists() or out.read_bytes() == expected, "half a file"
        whole += out.exists()
    out.unlink(missing_ok=True)
    print(f"kill {name}: {KILLS} times, {whole} after the file was whole, no half file")


PARTS = {
    each.__name__: each for each in (size, online, dynamic, scratch, speed, portable, damage, kill)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--start", type=int, default=TEST_START)
    parser.add_argument("--bytes", type=int, default=300_000)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    given = arguments.data
    if given is None:
        text = enwik8(arguments.start, arguments.bytes)
    else:
        text = given.read_bytes()[: arguments.bytes]
    model = cf.load(arguments.run)
    print(f"{model.name}: {model.parameter_count:,} parameters; {len(text):,} bytes")
    for name in arguments.only:
        PARTS[name](model, text)


if __name__ == "__main__":
    main()
