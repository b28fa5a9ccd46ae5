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
    PairLengths,
    Report,
    Task,
    rows_at_a_time,
)
from clearformer.text import Tokenizer

# Evaluated during training, which costs little; `clearformer evaluate --most` evaluates more.
MAX_VALIDATION_BYTES = 2**15
SAMPLE_TOKENS = 120  # of the text generated at each evaluation


@dataclass(frozen=True)
class TextReport(Report):
    """Scores of a generator on a text."""

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
        compression = self.compression
        return {
            "bits_per_byte": compression.bits_per_byte,
            "bits_per_character": compression.bits_per_character,
            "loss": compression.loss,
            "perplexity": compression.perplexity,
        }

    def lines(self, in_float32: TextReport | None = None) -> list[str]:
        scores, lines = self.compression, []
        if in_float32 is not None:
            before = in_float32.compression.bits_per_byte
            lines += [
                f"in float32          {before:.4f} bits per byte",
                f"quantizing costs    {scores.bits_per_byte - before:+.4f} bits per byte",
            ]
        return [
            *lines,
            f"bits per byte       {scores.bits_per_byte:.4f}",
            f"bits per character  {scores.bits_per_character:.4f}",
            f"loss per token      {scores.loss:.4f}",
            f"perplexity          {scores.perplexity:.4f} per token, stride {scores.stride}",
            f"xz -9e              {self.xz:.4f} bits per byte",
            f"protocol: {scores.protocol}; {self.data}",
        ]


class Stream(LoadedTask):
    """A long text, cut into windows."""

    same_shape: ClassVar[bool] = True
    cut: type[data.StreamBatches] | type[data.SegmentBatches] = data.StreamBatches

    def _load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        pattern_checks.require_visible_keys(config.model.patterns, config.model.length)
        training, held_back = sources.texts(config.data, folders, config.model.length)
        validation = sources.beginning(held_back, MAX_VALIDATION_BYTES)
        data.fingerprint_together(training, validation)  # later changes of the files are errors
        self.tokenizer, tokenizer_notes = sources.tokenizer_for(
            config.data, training.decoded, training.size, tokenizer
        )
        cache = sources.token_cache(folders)
        self.training = data.prepare(training, self.tokenizer, cache, folders.progress)
        self.validation = data.prepare(validation, self.tokenizer, cache, folders.progress)
        model = replace(config.model, vocabulary=self.tokenizer.size)
        self.config = replace(config, model=model)
        self.batches = self.cut(
            self.training, model.length, config.train.batch_size, config.train.seed
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{self.training.sha256} {self.validation.sha256}"
        notes = [*tokenizer_notes, *pattern_checks.unlikely_values(model.patterns, model.length)]
        if data.is_table(config.data.source):
            notes.append(
                f"{config.data.source} is a table; a generator is trained on the raw file, with "
                f"column names and labels"
            )
        repeated = data.repeated_text(training, validation)
        if repeated > 0.1:
            notes.append(f"{repeated:.0%} of the validation text is also in the training text")
        self.notes = tuple(notes)

    def batch(self, step: int) -> Batch:
        batch = self.batches.batch(step)
        return Batch(torch.from_numpy(batch.tokens), torch.from_numpy(batch.targets))

    def evaluate(self, model: Transformer) -> Measured:
        length = self.config.model.length
        rows = rows_at_a_time(self.config, 16)
        return compress(
            model, self.validation, self.tokenizer, length, stride=length, batch=rows
        ).measured

    def chance(self) -> float:
        return math.log(self.tokenizer.size)

    def sample(self, model: Transformer) -> str:
        """A short generated text, at temperature 0.5."""
        writer = LanguageModel(model, self.config.model, self.config.generation, self.tokenizer)
        try:
            prompt, start = writer.encode("\n"), ""
        except ValueError:
            # The vocabulary has neither a line break nor a token that begins a text.
            prompt = self.validation.read(0, 1).tolist()
            start = self.tokenizer.decode(prompt)
        tokens = stream(writer, prompt, Sampling(temperature=0.5), max_tokens=SAMPLE_TOKENS, seed=0)
        return start + "".join(token.text for token in tokens)

    def text_identity(self) -> dict[str, Any]:
        description = self.training.description
        return {"size": description.text_bytes, "sha256": description.text_sha256}


class NextTokenTask(Task):
    """Predict the next token of a long text."""

    metric: ClassVar[str] = "bits_per_byte"
    training_share: ClassVar[bool] = True
    evaluation_rows: ClassVar[int | None] = 16
    loaded: ClassVar[type[LoadedTask] | None] = Stream

    def training_material(self, config: RunConfig, folders: data.DataFolders) -> Material:
        return sources.texts(config.data, folders, config.model.length)[0]

    def example(self, config: RunConfig, rows: int, pair_lengths: PairLengths) -> tuple[Any, Any]:
        ids = torch.zeros(rows, config.model.length, dtype=torch.long)
        return Batch(ids, ids), None

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        config, options, folders = request.config, request.options, request.folders
        self._require_options(options)
        text, notes = self._text(config, options, folders), []
        cache = sources.token_cache(folders)
        if options.own_part == 1 and request.identity is not None:
            held_back = data.prepare(
                sources.beginning(text, MAX_VALIDATION_BYTES), request.tokenizer, cache
            )
            if held_back.sha256 not in request.identity.split():
                notes.append(
                    "the validation text is not the one of the training run: the file was changed "
                    "since, and the model may have been trained on some of this text"
                )
        total_bytes, text = text.size, sources.beginning(text, options.max_bytes)
        if text.size < total_bytes:
            notes.append(
                f"the first {text.size:,} of {total_bytes:,} bytes are scored: see `max_bytes`"
            )
        tokens = data.prepare(text, request.tokenizer, cache)
        return EvaluationData(request, text.name, text, tokens, tuple(notes))

    def _text(
        self, config: RunConfig, options: EvaluationOptions, folders: data.DataFolders
    ) -> data.TextSource:
        if options.own_part is not None:
            return sources.texts(config.data, folders, config.model.length)[options.own_part]
        source = options.data or config.data.source
        corpus = data.CORPORA.get(source)
        if corpus is None:
            return data.open_text(source)
        if not isinstance(corpus, data.TextCorpus):
            raise ValueError(f"{source} is a table, but {self.model.name} is {self.model.noun}")
        return corpus.read(options.part, folders)

    def _require_options(self, options: EvaluationOptions) -> None:
        if options.memory is not None and self.model.memory is None:
            raise ValueError(
                f"--memory is {options.memory}, but {self.model.name} has no memory: leave it out, "
                f"or train a Transformer-XL (clearformer train xl-small)"
            )
        for name in ("context", "stride", "memory"):
            value, minimum = getattr(options, name), 0 if name == "memory" else 1
            if value is not None and value < minimum:
                raise ValueError(f"--{name} is {value}, but it must be at least {minimum}")

    def measure(self, model: Transformer, prepared: EvaluationData) -> TextReport:
        options = prepared.request.options
        text = prepared.material
        assert isinstance(text, data.TextSource)
        compression = self.compress(model, prepared.content, prepared.request.tokenizer, options)
        return TextReport(compression, text, options.describe(prepared.name))

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
