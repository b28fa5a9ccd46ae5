"""Next token prediction: a generator learns from a long text."""

from __future__ import annotations

import lzma
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from clearformer import data
from clearformer.config import RunConfig
from clearformer.core.model import Batch, Transformer
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.stream import stream
from clearformer.tasks import pattern_checks, sources
from clearformer.tasks.compression import Compression, compress
from clearformer.tasks.measured import Measured
from clearformer.tasks.task import (
    EvaluationData,
    EvaluationOptions,
    EvaluationRequest,
    LoadedTask,
    Material,
    Report,
    Sides,
    Task,
    rows_at_a_time,
)
from clearformer.text import Tokenizer

# Bytes of a text that are evaluated during training: an indicator that costs little beside it.
# `clearformer evaluate` takes as much as it is told.
MOST_VALIDATION = 2**15
SAMPLE = 120  # tokens of a sample at each evaluation


@dataclass(frozen=True)
class TextReport(Report):
    """A generator on a text."""

    compression: Compression
    text: data.TextSource
    data: str

    @property
    def xz(self) -> float:
        """Bits per byte of `xz -9e` on the same text."""
        packed = lzma.compress(self.text.read(), preset=9 | lzma.PRESET_EXTREME)
        return 8 * len(packed) / self.text.size

    @property
    def metrics(self) -> dict[str, float]:
        found = self.compression
        return {
            "bits_per_byte": found.bits_per_byte,
            "bits_per_character": found.bits_per_character,
            "loss": found.loss,
            "perplexity": found.perplexity,
        }

    def lines(self, in_float32: TextReport | None = None) -> list[str]:
        found, lines = self.compression, []
        if in_float32 is not None:
            before = in_float32.compression.bits_per_byte
            lines += [
                f"in float32          {before:.4f} bits per byte",
                f"int8 costs          {found.bits_per_byte - before:+.4f} bits per byte",
            ]
        return [
            *lines,
            f"bits per byte       {found.bits_per_byte:.4f}",
            f"bits per character  {found.bits_per_character:.4f}",
            f"loss per token      {found.loss:.4f}",
            f"perplexity          {found.perplexity:.4f} per token, stride {found.stride}",
            f"xz -9e, beside it   {self.xz:.4f} bits per byte",
            f"protocol: {found.protocol}; {self.data}",
        ]


class Stream(LoadedTask):
    """A long text, cut into windows."""

    same_shape: ClassVar[bool] = True
    cut: type[data.StreamBatches] | type[data.SegmentBatches] = data.StreamBatches

    def _load(
        self, config: RunConfig, places: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        pattern_checks.require_sight(config.model.patterns, config.model.length)
        training, held_back = sources.texts(config.data, places, config.model.length)
        validation = sources.beginning(held_back, MOST_VALIDATION)
        data.fingerprint_together(training, validation)  # from here on, a change is noticed
        self.tokenizer, told = sources.tokenizer_for(
            config.data, training.decoded, training.size, tokenizer
        )
        cache = sources.token_cache(places)
        self.training = data.prepare(training, self.tokenizer, cache, places.progress)
        self.validation = data.prepare(validation, self.tokenizer, cache, places.progress)
        model = replace(config.model, vocabulary=self.tokenizer.size)
        self.config = replace(config, model=model)
        self.batches = self.cut(
            self.training, model.length, config.train.batch_size, config.train.seed
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{self.training.sha256} {self.validation.sha256}"
        notes = [*told, *pattern_checks.remarks(model.patterns, model.length)]
        if data.is_table(config.data.source):
            notes.append(
                f"{config.data.source} is a table, and a generator reads it as it is, names of "
                f"columns and labels included"
            )
        repeated = data.repeated_text(training, validation)
        if repeated > 0.1:
            notes.append(f"{repeated:.0%} of the validation text also stands in the training")
        self.notes = tuple(notes)

    def batch(self, step: int) -> Batch:
        found = self.batches.batch(step)
        return Batch(torch.from_numpy(found.tokens), torch.from_numpy(found.targets))

    def evaluate(self, model: Transformer) -> Measured:
        length = self.config.model.length
        rows = rows_at_a_time(self.config, 16)
        return compress(
            model, self.validation, self.tokenizer, length, stride=length, batch=rows
        ).measured

    def chance(self) -> float:
        return math.log(self.tokenizer.size)

    def sample(self, model: Transformer) -> str:
        """A short text, drawn at temperature 0.5."""
        writer = LanguageModel(model, self.config.model, self.tokenizer)
        try:
            prompt, begun = writer.encode("\n"), ""
        except ValueError:
            # Words and pieces of them know no line break, and no token that begins a text.
            prompt = self.validation.read(0, 1).tolist()
            begun = self.tokenizer.decode(prompt)
        drawn = stream(writer, prompt, Sampling(temperature=0.5), max_tokens=SAMPLE, seed=0)
        return begun + "".join(token.text for token in drawn)

    def text_identity(self) -> dict[str, Any]:
        about = self.training.description
        return {"size": about.text_bytes, "sha256": about.text_sha256}


class NextTokenTask(Task):
    """Predict the next token of a long text."""

    metric: ClassVar[str] = "bits_per_byte"
    evaluation_rows: ClassVar[int | None] = 16
    loaded: ClassVar[type[LoadedTask] | None] = Stream

    def training_material(self, config: RunConfig, places: data.DataFolders) -> Material:
        return sources.texts(config.data, places, config.model.length)[0]

    def example(self, config: RunConfig, rows: int, sides: Sides) -> tuple[Any, Any]:
        ids = torch.zeros(rows, config.model.length, dtype=torch.long)
        return Batch(ids, ids), None

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        config, options, places = request.config, request.options, request.places
        self._require_options(options)
        text, notes = self._text(config, options, places), []
        cache = sources.token_cache(places)
        if options.own_part == 1 and request.identity is not None:
            held_back = data.prepare(
                sources.beginning(text, MOST_VALIDATION), request.tokenizer, cache
            )
            if held_back.sha256 not in request.identity.split():
                notes.append(
                    "the text that is held back is not the one of the training: the file was "
                    "changed since, and some of this text may have been learned"
                )
        whole, text = text.size, sources.beginning(text, options.most)
        if text.size < whole:
            notes.append(f"the first {text.size:,} of {whole:,} bytes are scored: see --most")
        tokens = data.prepare(text, request.tokenizer, cache)
        return EvaluationData(request, text.name, text, tokens, tuple(notes))

    def _text(
        self, config: RunConfig, options: EvaluationOptions, places: data.DataFolders
    ) -> data.TextSource:
        if options.own_part is not None:
            return sources.texts(config.data, places, config.model.length)[options.own_part]
        source = options.data or config.data.source
        corpus = data.CORPORA.get(source)
        if corpus is None:
            return data.open_text(source)
        if not isinstance(corpus, data.TextCorpus):
            raise ValueError(f"{source} is a table, but {self.model.name} is {self.model.noun}")
        return corpus.read(options.part, places)

    def _require_options(self, options: EvaluationOptions) -> None:
        if options.memory is not None and self.model.memory is None:
            raise ValueError(
                f"--memory is {options.memory}, but {self.model.name} has no memory: leave it out, "
                f"or train a Transformer-XL (clearformer train xl-small)"
            )
        for name in ("context", "stride", "memory"):
            value, least = getattr(options, name), 0 if name == "memory" else 1
            if value is not None and value < least:
                raise ValueError(f"--{name} is {value}, but it must be at least {least}")

    def measure(self, model: Transformer, found: EvaluationData) -> TextReport:
        options = found.request.options
        text = found.material
        assert isinstance(text, data.TextSource)
        compression = self.compress(model, found.content, found.request.tokenizer, options)
        return TextReport(compression, text, options.describe(found.name))

    def compress(
        self,
        model: Transformer,
        tokens: data.TokenFile,
        tokenizer: Tokenizer,
        options: EvaluationOptions,
    ) -> Compression:
        context = options.context or self.model.length
        stride = options.stride or max(1, context // 2)
        return compress(model, tokens, tokenizer, context, stride)
