"""Proof of a model's bits per byte: compress, decompress, compare.

A loss alone proves nothing: a model that sees the token that it predicts, or whose probabilities
sum to more than one, reports fewer bits than any decoder needs. `prove` writes the file, decodes
it, and compares both the text and the bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

from clearformer.arguments import check_keywords
from clearformer.compressor import protocols
from clearformer.compressor.causality import find_leak
from clearformer.compressor.codec import (
    Compressed,
    Progress,
    Source,
    compress,
    decompress,
    read_source,
    require_tokenizer,
)
from clearformer.compressor.coding_plan import Plan, native, plan_for
from clearformer.compressor.curve import Curve, Points, bits_by_part
from clearformer.compressor.models import ModelSource, opened
from clearformer.compressor.online import Online
from clearformer.compressor.pages import Tokens, tokenize
from clearformer.compressor.protocols import BitsSoFar
from clearformer.generate.language_model import LanguageModel
from clearformer.model import Model
from clearformer.verification.catalogue import LEAKS
from clearformer.verification.check import verify

CLOSE, SLACK = 0.001, 64  # how far the code may be from the claim: a share of it, and some bytes
CANNOT = "this model cannot decode: it needs tokens that are not there yet"


@dataclass(frozen=True)
class Claim:
    """Bits of a text by the loss of a model, computed on whole windows."""

    bits: float
    tokens: int
    size: int  # bytes of the text
    streams: int
    online: Online | None
    curve: Points = ()  # as of `Compressed`

    @property
    def bits_per_byte(self) -> float:
        return self.bits / max(1, self.size)

    def lines(self) -> list[str]:
        """The claim, and how the bits fall if the model learns."""
        return [self.line(), *([] if self.online is None else bits_by_part(self.curve))]

    def document(self) -> dict[str, Any]:
        """The figures as JSON."""
        found = {"claimed_bits_per_byte": self.bits_per_byte, "streams": self.streams}
        return found if self.online is None else {**found, "curve": self.curve}

    def line(self) -> str:
        learning = ", learning online" if self.online is not None else ""
        return (
            f"the model claims    {self.bits_per_byte:.4f} bits per byte in {self.streams} streams"
            f"{learning}"
        )


@dataclass(frozen=True)
class Proof:
    """A claim, and the file that was decoded again."""

    claim: Claim
    packed: Compressed

    @property
    def difference(self) -> float:
        """The relative difference between code and claim."""
        return 8 * self.packed.code_size / max(1.0, self.claim.bits) - 1

    def lines(self) -> list[str]:
        header = self.packed.header
        code = 8 * self.packed.code_size / max(1, header.length)
        return [
            self.claim.line(),
            f"its code has        {code:.4f} bits per byte, {self.difference:+.3%}",
            f"the file has        {self.packed.bits_per_byte:.4f} bits per byte: "
            f"{self.packed.size:,} bytes for {header.length:,}",
            *([] if self.claim.online is None else bits_by_part(self.packed.curve)),
            f"decoded             sha256 {header.sha256[:16]}…, the same: proven",
        ]

    def document(self) -> dict[str, Any]:
        """The figures as JSON."""
        length = max(1, self.packed.header.length)
        return self.claim.document() | {
            "code_bits_per_byte": 8 * self.packed.code_size / length,
            "file_bits_per_byte": self.packed.bits_per_byte,
            "file_bytes": self.packed.size,
            "sha256": self.packed.header.sha256,
            **({} if self.claim.online is None else {"curve": self.packed.curve}),
        }


@check_keywords
def prove(
    model: Model,
    source: Source,
    *,
    streams: int | None = None,
    context: int | None = None,
    stride: int | None = None,
    online: Online | bool = False,
    counts: int | None = None,
    progress: Progress | None = None,
) -> Proof:
    """Compress a text, decompress it, and compare the bits with what the model claims.

    Args:
        model (Model): A language model.
        source (path or bytes): The text.
        streams, context, stride, online, counts: As in `compress`.
        progress (callable, optional): Called with coded tokens and all, to encode and to decode.

    Returns:
        Proof: ``claim``, ``packed``, and the report as ``lines()``.

    Raises:
        ValueError: If the model looks ahead, or if its code needs more bits than it claims.
    """
    data = read_source(source)
    settings: Any = {
        "streams": streams, "context": context, "stride": stride, "online": online, "counts": counts
    }  # fmt: skip
    found = claim(model, data, **settings)
    packed = compress(
        data,
        model,
        **settings,
        progress=_part(progress, 0),
    )
    restored = decompress(packed.data, model, progress=_part(progress, 1))
    assert restored == data  # `decompress` compares the hashes
    proof = Proof(found, packed)
    if abs(8 * packed.code_size - found.bits) > CLOSE * found.bits + 8 * SLACK:
        raise ValueError(
            f"the claim is not proven: by its loss the text has {found.bits / 8:,.0f} bytes, but "
            f"its code has {packed.code_size:,}, so the loss is not the one of its predictions"
        )
    return proof


def _part(progress: Progress | None, part: int) -> Progress | None:
    """The progress of the first or the second half of a proof."""
    if progress is None:
        return None
    return lambda done, total: progress(part * total + done, 2 * total)


def claim(
    model: ModelSource,
    data: bytes,
    *,
    streams: int | None = None,
    context: int | None = None,
    stride: int | None = None,
    online: Online | bool = False,
    from_scratch: bool = False,
    seed: int = 0,
    counts: int | None = None,
    progress: BitsSoFar | None = None,
) -> Claim:
    """The bits of a text by the loss of the model; with `online`, training on each window.

    The options are those of `compress`. `progress` is called with the number of tokens and of bits
    so far.
    """
    try:
        language_model, _ = opened(model, seed if from_scratch else None)
    except ValueError as problem:
        if "later ones" in str(problem):  # a pattern that attends to later tokens
            raise ValueError(f"{CANNOT} ({problem})") from None
        raise
    tokens = tokenize(data, require_tokenizer(language_model)).tokens
    plan = plan_for(
        language_model,
        tokens,
        streams=streams,
        context=context,
        stride=stride,
        online=online,
        counts=counts,
        trained=not from_scratch,
        arithmetic=native(None),
    )
    vocabulary = language_model.config.vocabulary
    beginning = np.asarray(tokens[: language_model.config.length])
    leak = find_leak(language_model.module, beginning, vocabulary)
    if leak is not None:
        raise ValueError(f"{CANNOT} ({leak}{_finding(language_model)})")
    first = min(plan.streams, len(tokens)) * log2(vocabulary)  # they are uniform
    curve = Curve(len(data), len(tokens))

    def read(done: int, bits: float) -> None:
        curve(done, first + bits)
        if progress is not None:
            progress(done, bits)

    with plan.arithmetic.running(language_model):
        bits = first + _bits(language_model, plan, tokens, read)
    curve(len(tokens), bits)  # the last token of a stream is not read
    return Claim(bits, len(tokens), len(data), plan.streams, plan.online, curve.points)


def _finding(model: LanguageModel) -> str:
    """What `verify` says about the leak, with the module where it starts; nothing if it is silent.

    `verify` takes modules of any kind and may not know how to call this one, which does not change
    that the model leaks.
    """
    try:
        report = verify(model.module, as_="causal-lm", only=LEAKS)
    except ValueError:
        return ""
    return "".join(f"; verify: {each.name} at {each.place}" for each in report.findings[:1])


def _bits(model: LanguageModel, plan: Plan, tokens: Tokens, progress: BitsSoFar) -> float:
    starts, counts = protocols.cut(tokens, plan.streams)
    rows = np.zeros((plan.streams, int(counts[0])), dtype=np.int64)
    for row, start, count in zip(rows, starts, counts, strict=True):
        row[:count] = tokens[start : start + count]
    if rows.shape[1] < 2:
        return 0.0
    learner, mixture = plan.learner(model), plan.mixture(model)
    learned = model if learner is None else learner.model
    return protocols.claim(learned, plan.protocol, rows, counts, learner, mixture, progress)
