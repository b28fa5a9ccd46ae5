"""`compress` and `decompress`: any file to a `.cf` file and back, bit for bit.

Encoding runs the same one-token steps as decoding, in a batch of the same S streams, on the same
number of threads. A faster pass over whole windows would give slightly different probabilities,
with which decoding fails.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clearformer import safe_files
from clearformer.arguments import check_keywords
from clearformer.compressor import container, environment, protocols
from clearformer.compressor.arithmetic import Arithmetic, Portable
from clearformer.compressor.coding_plan import Plan, native, plan_for
from clearformer.compressor.container import Header
from clearformer.compressor.curve import Curve, Points
from clearformer.compressor.models import ModelSource, model_hash, opened
from clearformer.compressor.online import Online
from clearformer.compressor.pages import Pages, Tokens, restore, tokenize
from clearformer.compressor.protocols import cut
from clearformer.generate.language_model import LanguageModel
from clearformer.inference import entropy_coder
from clearformer.inference.entropy_coder import Ids, code
from clearformer.text import Tokenizer, sha256

Source = bytes | bytearray | memoryview | str | os.PathLike[str]
Progress = Callable[[int, int], None]  # coded tokens, all tokens


@dataclass(frozen=True)
class Compressed:
    """A compressed file, and what it consists of.

    Attributes:
        data (bytes): The file.
        header (Header): What a decoder needs: hashes, protocol, versions.
        code_size (int): Bytes of the code alone.
        raw_size (int): Bytes of the original that the tokenizer cannot restore, stored by LZMA.
        curve (list): Pairs of original bytes and bits of code so far, one for each 100 KB.
    """

    data: bytes
    header: Header
    code_size: int
    raw_size: int
    curve: Points

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def bits_per_byte(self) -> float:
        """Bits of the whole file for each byte of the original."""
        return 8 * self.size / max(1, self.header.length)


@check_keywords
def compress(
    source: Source,
    model: ModelSource,
    *,
    out: str | os.PathLike[str] | None = None,
    streams: int | None = None,
    context: int | None = None,
    stride: int | None = None,
    threads: int | None = None,
    online: Online | bool = False,
    from_scratch: bool = False,
    seed: int = 0,
    counts: int | None = None,
    portable: bool = False,
    progress: Progress | None = None,
) -> Compressed:
    """Compress a file with a language model.

    Args:
        source (path or bytes): What to compress: any file, text or not.
        model (Model, path or str): The model that predicts it, or with `from_scratch` a preset.
        out (path, optional): Where to write the compressed file. Default: nowhere.
        streams (int, optional): Parts that are coded side by side: more is faster, and costs some
            bytes for each. Default: one for every 4,096 tokens, at most 32.
        context (int, optional): Tokens that a prediction may use. Default: the model's length.
        stride (int, optional): Tokens between two windows; smaller is slower and better. Default:
            half the context.
        threads (int, optional): Of torch; decoding uses as many. Default: as torch is set.
        online (bool or Online): Train the model while it codes. Default: False.
        from_scratch (bool): Start from the initial weights of the preset that `model` names, so
            that no weights have to be shipped; needs `online`. Default: False.
        seed (int): Of these initial weights. Default: 0.
        counts (int, optional): Mix the predictions with counts of what followed the last 1 to this
            many tokens so far in the file; at most 8, 0: no counts. Default: 6 with
            `from_scratch`, otherwise 0.
        portable (bool): Compute so that any CPU, version of torch and number of threads decodes
            the file; slower. Default: False.
        progress (callable, optional): Called with the number of coded tokens and of all.

    Returns:
        Compressed: ``data``, ``size``, ``bits_per_byte`` and the ``header``.

    Raises:
        ValueError: If the model cannot predict text, or an option does not fit it.

    Example:
        >>> import clearformer as cf
        >>> packed = cf.compress("my.txt", "runs/mine", out="my.txt.cf")  # doctest: +SKIP
        >>> packed.bits_per_byte  # doctest: +SKIP
    """
    if from_scratch and not online:
        raise ValueError("`from_scratch` needs `online`: untrained weights predict nothing")
    if seed and not from_scratch:
        raise ValueError("`seed` is for initial weights: leave it out, or add `from_scratch`")
    language_model, name = opened(model, seed if from_scratch else None)
    tokenizer = require_tokenizer(language_model)
    with open_source(source) as file:
        pages = tokenize(file, tokenizer)
    arithmetic: Arithmetic = Portable() if portable else native(threads)
    plan = plan_for(
        language_model,
        pages.tokens,
        streams=streams,
        context=context,
        stride=stride,
        online=online,
        counts=counts,
        trained=not from_scratch,
        arithmetic=arithmetic,
    )
    prepared = arithmetic.prepare(language_model)
    with arithmetic.running(prepared):
        probe = plan.probe(prepared, len(pages.tokens))
        encoded, curve = _encode(prepared, plan, pages.tokens, pages.length, progress)
    header = Header(
        name=name,
        seed=seed if from_scratch else None,
        **_must_match(language_model, plan),
        probe=probe,
        tokens=len(pages.tokens),
        length=pages.length,
        sha256=pages.sha256[: container.TEXT],
        table=len(pages.table),
    )
    packed = container.pack(header, pages.table, encoded)
    if out is not None:
        safe_files.replace(Path(out), packed)
    return Compressed(packed, header, len(encoded), pages.raw, curve)


@check_keywords
def decompress(
    source: Source,
    model: ModelSource | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> bytes | None:
    """Restore a file that `compress` wrote.

    Args:
        source (path or bytes): The compressed file.
        model (Model or path, optional): The model that compressed it. Default: the path or preset
            that the file names.
        out (path, optional): Where to write the original; it is written whole or not at all.
            Default: nowhere.
        progress (callable, optional): Called with the number of decoded tokens and of all.

    Returns:
        bytes: The original; None if it was written to `out`.

    Raises:
        ValueError: If the file is damaged, or was written by another model, tokenizer, version of
            torch or kind of CPU; the message names what differs.
    """
    named = "the data" if isinstance(source, bytes | bytearray | memoryview) else str(source)
    header, table, encoded = container.unpack(read_source(source), named)
    plan = Plan.from_header(header)
    language_model, _ = opened(header.name if model is None else model, header.seed)
    tokenizer = require_tokenizer(language_model)
    plan.check(language_model)
    _require_same(header, language_model, plan, named)
    least = header.tokens * container.min_token_bits(language_model.config.vocabulary)
    if least > 8 * len(encoded) + 64:
        raise ValueError(f"{named} has an invalid header: its code is too short for its tokens")
    prepared = plan.arithmetic.prepare(language_model)
    with plan.arithmetic.running(prepared):
        if plan.probe(prepared, header.tokens) != header.probe:
            raise ValueError(
                f"{named} cannot be decoded here: this machine computes other probabilities than "
                f"the one that wrote it, though it looks the same; decode it there"
            )
        tokens = _decode(prepared, plan, encoded, header.tokens, progress)
    return _write(restore(Pages(tokens, table), tokenizer), header, named, out)


def _encode(
    model: LanguageModel, plan: Plan, tokens: Tokens, size: int, progress: Progress | None
) -> tuple[memoryview, Points]:
    """The code of some tokens, and how many bits each 100 KB of the text took."""
    starts, counts = cut(tokens, plan.streams)
    encoder = entropy_coder.Encoder(tokens, starts)
    curve = Curve(size, len(tokens))

    def step(done: int, table: entropy_coder.Frequencies) -> Ids:
        coded = encoder(done, table)
        total = done * plan.streams + len(coded)
        curve(total, encoder.bits)
        if progress is not None:
            progress(total, len(tokens))
        return coded

    code(plan.predictor(model, plan.learner(model)), counts, model.config.vocabulary, step)
    return encoder.finish(), curve.points


def _decode(
    model: LanguageModel,
    plan: Plan,
    encoded: bytes | memoryview,
    count: int,
    progress: Progress | None,
) -> Tokens:
    vocabulary = model.config.vocabulary
    kind = next(k for k in (np.uint8, np.uint16, np.uint32) if vocabulary - 1 <= np.iinfo(k).max)
    tokens: NDArray[np.generic] = np.zeros(count, dtype=kind)
    starts, counts = cut(tokens, plan.streams)
    decoder = entropy_coder.Decoder(encoded, tokens, starts)

    def step(done: int, table: entropy_coder.Frequencies) -> Ids:
        found = decoder(done, table)
        if progress is not None:
            progress(done * plan.streams + len(found), count)
        return found

    code(plan.predictor(model, plan.learner(model)), counts, vocabulary, step)
    return tokens


def _must_match(model: LanguageModel, plan: Plan) -> dict[str, Any]:
    """The fields of a header that must be the same where it is decoded."""
    weights = (each for each in model.module.state_dict().values() if each.is_floating_point())
    return {
        "model": model_hash(model),
        "tokenizer": sha256(require_tokenizer(model))[: container.SHORT],
        "protocol": protocols.to_json(plan.protocol),
        "streams": plan.streams,
        "online": None if plan.online is None else plan.online.to_json(),
        "counts": plan.counts,
        "dtype": str(next(weights).dtype).removeprefix("torch."),
        "coder": environment.coder(),
        "machine": plan.arithmetic.machine,
    }


WHY = {
    "model": "it was compressed with another model (weights or config): name that one with `model`",
    "tokenizer": "it was compressed with another tokenizer: use the model with its own",
}


def _require_same(header: Header, model: LanguageModel, plan: Plan, name: str) -> None:
    """ValueError if anything differs from what the encoder used."""
    here = _must_match(model, plan)
    machine, written = here.pop("machine"), header.machine
    pairs = [(key, getattr(header, key), value) for key, value in here.items()]
    if machine is not None and written is not None:
        pairs += [("torch", written.torch, machine.torch), ("cpu", written.cpu, machine.cpu)]
    for key, was, value in pairs:
        if was != value:
            why = WHY.get(key) or (
                f"it was written with {key} {was}, but here it is {value}: other floating-point "
                f"numbers would decode another text"
            )
            raise ValueError(f"{name} cannot be decoded here: {why}")


def _write(
    parts: Iterable[bytes], header: Header, name: str, out: str | os.PathLike[str] | None
) -> bytes | None:
    """Collect or write the restored bytes, if their length and hash are right."""
    digest, length, kept = hashlib.sha256(), 0, bytearray()
    place = nullcontext() if out is None else safe_files.replacing(Path(out))
    with place as file:
        for part in parts:
            digest.update(part)
            length += len(part)
            if file is None:
                kept += part
            else:
                file.write(part)
        if (digest.hexdigest()[: container.TEXT], length) != (header.sha256, header.length):
            raise ValueError(
                f"{name} does not decode to the text that was compressed (its hash differs), so "
                f"nothing is written"
            )
    return bytes(kept) if out is None else None


def open_source(source: Source) -> BinaryIO:
    """An open file with the content of a source."""
    if isinstance(source, bytes | bytearray | memoryview):
        return io.BytesIO(source)
    path = Path(os.path.expanduser(source))
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file, but one is needed")
    return path.open("rb")


def read_source(source: Source) -> bytes:
    with open_source(source) as file:
        return file.read()


def require_tokenizer(model: LanguageModel) -> Tokenizer:
    if model.tokenizer is None:
        raise ValueError(
            f"{model.config.name} has no tokenizer, so it cannot read a file: load it with one"
        )
    if model.tokenizer.size > model.config.vocabulary:
        raise ValueError(
            f"the tokenizer has {model.tokenizer.size:,} ids, but {model.config.name} predicts "
            f"{model.config.vocabulary:,}: load the model with its own tokenizer"
        )
    return model.tokenizer
