"""What encoder and decoder must share: protocol, streams, learning, counts, arithmetic."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch

from clearformer.compressor import container, protocols
from clearformer.compressor.arithmetic import Arithmetic, Native, Portable
from clearformer.compressor.container import Header
from clearformer.compressor.counts import MAX_ORDER
from clearformer.compressor.mixing import MixedPredictor, Mixture
from clearformer.compressor.online import Online, OnlineLearner
from clearformer.compressor.pages import Tokens
from clearformer.compressor.protocols import Protocol
from clearformer.generate.language_model import LanguageModel
from clearformer.inference.entropy_coder import Predictor, frequencies

STREAMS, MIN_STREAM = 32, 4096  # streams of a long file; tokens that make another one worthwhile
MAX_CACHED = 2**20  # tokens in the caches of all streams
MAX_MIXED = 2**27  # probabilities of a step, by all orders of counts and the model: a gigabyte
MAX_THREADS = 1024
PROBE_STEPS = 8
COUNTS_FROM_SCRATCH = 6


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings of the coding."""

    protocol: Protocol
    streams: int
    online: Online | None
    counts: int
    trained: bool
    arithmetic: Arithmetic

    @staticmethod
    def from_header(header: Header) -> Plan:
        online = None if header.online is None else Online.from_json(header.online)
        machine = header.machine
        return Plan(
            protocol=protocols.from_json(header.protocol),
            streams=header.streams,
            online=online,
            counts=header.counts,
            trained=header.seed is None,
            arithmetic=Portable() if machine is None else Native(machine.threads),
        )

    def check(self, model: LanguageModel) -> None:
        """Raise ValueError if this model cannot be used in this way."""
        weight = next(model.module.parameters())
        if weight.device.type != "cpu":
            raise ValueError(
                f"the model is on {weight.device}, but files are compressed on the CPU: load it "
                f"with device='cpu'"
            )
        most = container.MAX_STREAMS
        if not 1 <= self.streams <= most:
            raise ValueError(f"`streams` is {self.streams}, but it must be from 1 to {most:,}")
        if not 0 <= self.counts <= MAX_ORDER:
            raise ValueError(f"`counts` is {self.counts}, but it must be from 0 to {MAX_ORDER}")
        mixed = self.streams * (self.counts + 1) * model.config.vocabulary
        if self.counts and mixed > MAX_MIXED:
            raise ValueError(
                f"{self.streams:,} streams with `counts` {self.counts} have {mixed:,} "
                f"probabilities in each step, but {MAX_MIXED:,} are the most: choose fewer "
                f"`streams` or `counts`"
            )
        for name in ("online", "counts"):
            if getattr(self, name) and self.arithmetic.machine is None:
                raise ValueError(
                    f"`portable` and `{name}` do not go together: there is no portable arithmetic "
                    f"of training; leave one of them out"
                )
        if self.streams * self.protocol.longest > MAX_CACHED:
            raise ValueError(
                f"{self.streams:,} streams of {self.protocol.longest:,} tokens are held in memory, "
                f"but {MAX_CACHED:,} tokens are the most: choose fewer `streams` or a shorter "
                f"`context`"
            )

    def learner(self, model: LanguageModel) -> OnlineLearner | None:
        return None if self.online is None else OnlineLearner(model, self.online)

    def mixture(self, model: LanguageModel) -> Mixture | None:
        if not self.counts:
            return None
        return Mixture(self.counts, self.streams, model.config.vocabulary, self.trained)

    def predictor(self, model: LanguageModel, learner: OnlineLearner | None) -> Predictor:
        learned = model if learner is None else learner.model
        predictor = self.protocol.predictor(learned, self.streams, learner)
        mixture = self.mixture(model)
        return predictor if mixture is None else MixedPredictor(predictor, mixture)

    def probe(self, model: LanguageModel, tokens: int) -> str:
        """Hash of the frequencies of fixed tokens: another machine's differ if its sums do.

        They are read one by one and, if streams of a text with `tokens` tokens are longer than a
        window, at once, as the beginning of the next window is.
        """
        vocabulary, digest = model.config.vocabulary, hashlib.sha256()
        predictor = self.predictor(model, None)
        chance = np.random.Generator(np.random.PCG64(0))
        for _ in range(PROBE_STEPS):
            digest.update(
                frequencies(predictor.read(chance.integers(0, vocabulary, self.streams))).tobytes()
            )
        del predictor  # with its caches: those for a window take as much memory
        longest = self.protocol.longest
        if tokens > self.streams * longest:
            window = chance.integers(0, vocabulary, (self.streams, longest))
            logits = self.protocol.reread(model, window)
            if logits is not None:
                digest.update(frequencies(logits).tobytes())
        return digest.hexdigest()[: container.SHORT]


def as_online(online: Online | bool, from_scratch: bool = False) -> Online | None:
    """The settings of online learning; True means the defaults."""
    if isinstance(online, Online):
        return online
    usual = Online.from_scratch() if from_scratch else Online()
    return usual if online else None


def plan_for(
    model: LanguageModel,
    tokens: Tokens,
    *,
    streams: int | None,
    context: int | None,
    stride: int | None,
    online: Online | bool,
    counts: int | None,
    trained: bool,
    arithmetic: Arithmetic,
) -> Plan:
    """The plan for a text; None means the default."""
    usual = max(1, min(STREAMS, len(tokens) // MIN_STREAM))
    plan = Plan(
        protocol=protocols.protocol_for(model.config, context, stride),
        streams=usual if streams is None else streams,
        online=as_online(online, not trained),
        counts=(0 if trained else COUNTS_FROM_SCRATCH) if counts is None else counts,
        trained=trained,
        arithmetic=arithmetic,
    )
    plan.check(model)
    return plan


def native(threads: int | None) -> Native:
    """torch's own arithmetic; None: on as many threads as torch uses now."""
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"`threads` is {threads}, but it must be from 1 to {MAX_THREADS:,}")
    return Native(torch.get_num_threads() if threads is None else threads)
