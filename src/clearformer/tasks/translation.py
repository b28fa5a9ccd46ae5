"""Translation: an encoder-decoder learns to map one sequence to another."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from clearformer import data
from clearformer.config import DataConfig, GenerationDefaults, RunConfig, Seq2SeqConfig
from clearformer.core.model import PairBatch, Seq2Seq
from clearformer.generate.beam import Beam
from clearformer.generate.translate import Translator
from clearformer.inference.modes import inference_mode
from clearformer.tasks.bleu import Overlap, overlap, sentence_chrf
from clearformer.tasks.measured import Measured
from clearformer.tasks.task import (
    EvaluationData,
    EvaluationRequest,
    LoadedTask,
    Material,
    PairLengths,
    Report,
    Task,
)
from clearformer.text import Tokenizer
from clearformer.text import train as train_tokenizer

# Evaluated during training, which costs little; `clearformer evaluate` evaluates all.
MAX_VALIDATION_PAIRS = 500
SAMPLED = 20_000  # pairs from which lengths are estimated


@dataclass(frozen=True)
class TranslationReport(Report):
    """Scores of a translator on pairs."""

    texts: tuple[str, ...]  # the translations
    pairs: data.Pairs  # sources and references
    overlap: Overlap
    loss: float  # nats per target token
    protocol: str

    @property
    def metrics(self) -> dict[str, float]:
        scores = self.overlap
        return {
            "loss": self.loss,
            "bleu": scores.bleu,
            "bleu_lowercase": scores.bleu_lowercase,
            "chrf": scores.chrf,
            "exact": scores.exact,
        }

    def lines(self, in_float32: TranslationReport | None = None) -> list[str]:
        scores = self.overlap
        return [
            f"BLEU         {scores.bleu:.2f}   {scores.bleu_signature}",
            f"lower-cased  {scores.bleu_lowercase:.2f}   {scores.bleu_lowercase_signature}",
            f"chrF         {scores.chrf:.2f}   {scores.chrf_signature}",
            f"exact match  {scores.exact:.4f} on {scores.sentences:,} pairs",
            f"loss         {self.loss:.4f} nats per target token, end mark included, not smoothed",
            f"protocol: {self.protocol}",
        ]


class TranslationPairs(LoadedTask):
    """Pairs of a source and a target."""

    def _load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        assert isinstance(config.model, Seq2SeqConfig)
        training, validation, notes = pairs(config.data, folders, config.train.seed)
        self.tokenizer = tokenizer or tokenizer_of(config.data, training)
        known = None if tokenizer is None else config.generation.target_ids
        if known is None:
            # They come after the tokenizer's ids, so that any tokenizer can be used.
            known, size = (self.tokenizer.size + 1, self.tokenizer.size), self.tokenizer.size + 2
        else:  # of the model that is trained further, which may have them elsewhere
            size = config.model.vocabulary
        self.start_id, self.end_id = known
        encoded = data.encode_pairs(training, self.tokenizer, self.start_id, self.end_id)
        source_ids, target_ids = data.distinctive_tokens(encoded)
        model = replace(config.model, vocabulary=size)
        generation = replace(
            config.generation,
            start_id=self.start_id,
            end_ids=(self.end_id,),
            typical_source_ids=source_ids,
            typical_target_ids=target_ids,
        )
        self.config = replace(config, model=model, generation=generation)
        self.model_config = model
        fitting = fitting_rows(encoded, model.length)
        self.training = encoded.select(fitting)
        if not fitting:
            raise ValueError(
                f"{training.name}: each of its {len(training):,} pairs has more than "
                f"{model.length} tokens on a side: build the model with a larger --length"
            )
        if len(fitting) < len(training):
            notes += (left_out(len(training) - len(fitting), len(training), model.length),)
        self.validation, self.encoded = self._validation(validation)
        training_pairs = set(zip(training.sources, training.targets, strict=True))
        validation_pairs = zip(validation.sources, validation.targets, strict=True)
        repeated = sum(pair in training_pairs for pair in validation_pairs)
        if repeated:
            notes += (
                f"{repeated:,} of {len(validation):,} validation pairs are also training pairs",
            )
        self.notes = notes
        self.batches = data.PairBatches(
            self.training, config.train.batch_size, config.train.batch_tokens, config.train.seed
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{self.training.sha256()} {self.encoded.sha256()}"

    def _validation(self, validation: data.Pairs) -> tuple[data.Pairs, data.EncodedPairs]:
        """An even sample of the validation pairs that fit."""
        encoded = data.encode_pairs(validation, self.tokenizer, self.start_id, self.end_id)
        fitting = fitting_rows(encoded, self.model_config.length)
        if not fitting:
            raise ValueError(
                f"{validation.name}: each of its {len(validation):,} validation pairs has more "
                f"than {self.model_config.length} tokens on a side: use a larger --length"
            )
        rows = fitting[:: -(-len(fitting) // MAX_VALIDATION_PAIRS)]
        return validation.select(rows), encoded.select(rows)

    def batch(self, step: int) -> PairBatch:
        return tensors(self.batches.batch(step))

    def evaluate(self, model: Seq2Seq) -> Measured:
        translator = Translator(model, self.model_config, self.config.generation, self.tokenizer)
        # An untrained model does not stop by itself.
        max_tokens = 10 + 3 * max(len(ids) for ids in self.encoded.targets) // 2
        # In full precision, as in use: caches have the dtype of the weights.
        with torch.autocast(next(model.parameters()).device.type, enabled=False):
            translations = translator.translate(
                self.validation.sources, Beam(width=1), batch_size=128, max_tokens=max_tokens
            )
        texts = [each[0].text for each in translations]
        scores = overlap(texts, self.validation.targets)
        metrics = {
            "loss": loss(model, self.encoded),
            "bleu": scores.bleu,
            "chrf": scores.chrf,
            "exact": scores.exact,
        }
        protocol = (
            f"{len(texts):,} pairs of at most {self.model_config.length} tokens a side, each "
            f"translated greedily (beam 1)"
        )
        return Measured(metrics, sentence_chrf(texts, self.validation.targets), protocol)

    def sample(self, model: Seq2Seq) -> str:
        """A source from the validation pairs, and the model's translation."""
        source = self.validation.sources[len(self.validation) // 2]
        translator = Translator(model, self.model_config, self.config.generation, self.tokenizer)
        translations = translator.translate(
            [source], Beam(width=1), max_tokens=2 * len(source) + 10
        )
        return f"{source} -> {translations[0][0].text}"

    def chance(self) -> float:
        return math.log(self.model_config.vocabulary)


class TranslationTask(Task):
    """Predict the target of a source, with teacher forcing."""

    # chrF instead of BLEU, since it is also meaningful for targets of a single word.
    metric: ClassVar[str] = "chrf"
    larger_is_better: ClassVar[bool] = True
    counted: ClassVar[str] = "target tokens"
    padded: ClassVar[bool] = True
    loaded: ClassVar[type[LoadedTask] | None] = TranslationPairs

    def training_material(self, config: RunConfig, folders: data.DataFolders) -> Material:
        training, _, _ = pairs(config.data, folders, config.train.seed)
        return as_texts(training)

    def example(self, config: RunConfig, rows: int, pair_lengths: PairLengths) -> tuple[Any, Any]:
        length = config.model.length
        source, target = (
            torch.zeros(rows, min(length, side), dtype=torch.long) for side in pair_lengths
        )
        return PairBatch(source, target, target, source == 0, target == 0), None

    def rows(self, config: RunConfig, pair_lengths: PairLengths) -> int:
        """Pairs in a batch, limited by `batch_tokens` if it is set."""
        train = config.train
        if train.batch_tokens is None:
            return train.batch_size
        return max(1, min(train.batch_size, train.batch_tokens // self.length(pair_lengths)))

    def length(self, pair_lengths: PairLengths) -> int:
        return min(self.model.length, max(pair_lengths))

    def pair_lengths(
        self, config: RunConfig, folders: data.DataFolders
    ) -> tuple[PairLengths, PairLengths]:
        """With padding, estimated from a sample with a tokenizer trained on it."""
        training, _, _ = pairs(config.data, folders, config.train.seed)
        training = training.select(range(0, len(training), -(-len(training) // SAMPLED)))
        encoded = data.encode_pairs(training, tokenizer_of(config.data, training), 0, 0)
        encoded = encoded.select(fitting_rows(encoded, config.model.length))
        train = config.train
        batches = data.PairBatches(encoded, train.batch_size, train.batch_tokens, train.seed)
        all_batches = [batches.batch(step) for step in range(batches.steps_per_epoch)]
        largest = max(all_batches, key=lambda each: each.source.size + each.target.size)
        typical_source, typical_target = (
            round(sum(side.size for side in padded) / len(encoded))
            for padded in zip(*((each.source, each.target) for each in all_batches), strict=True)
        )
        return (largest.source.shape[1], largest.target.shape[1]), (typical_source, typical_target)

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        given, notes = self._pairs(request)
        start_id, end_id = request.config.generation.require_target_ids(self.model.name)
        encoded = data.encode_pairs(given, request.tokenizer, start_id, end_id)
        fitting = fitting_rows(encoded, self.model.length)
        if len(fitting) < len(given):
            notes += (left_out(len(given) - len(fitting), len(given), self.model.length),)
        if not fitting:
            raise ValueError(f"{given.name}: {notes[-1]}, and nothing is left to evaluate")
        given = given.select(fitting)
        content = (given, encoded.select(fitting))
        return EvaluationData(request, given.name, as_texts(given), content, notes)

    def _pairs(self, request: EvaluationRequest) -> tuple[data.Pairs, tuple[str, ...]]:
        config, options, folders = request.config, request.options, request.folders
        settings = replace(
            config.data,
            source_column=options.source_column or config.data.source_column,
            target_column=options.target_column or config.data.target_column,
        )
        if options.own_part is not None:
            training, validation, notes = pairs(settings, folders, config.train.seed)
            return (training, validation)[options.own_part], notes
        source = options.data or settings.source
        if source in data.CORPORA:
            return pair_corpus(source).read(options.part, folders), ()
        return _read_pairs(settings, source)

    def translator(
        self,
        model: Any,
        generation: GenerationDefaults,
        tokenizer: Tokenizer,
        name: object = None,
    ) -> Translator:
        """The model, ready to translate; `name` is the model's name in error messages."""
        if not isinstance(model, Seq2Seq) or not isinstance(self.model, Seq2SeqConfig):
            raise TypeError(f"{type(model).__name__} is not an encoder-decoder")
        generation.require_target_ids(name)
        return Translator(model, self.model, generation, tokenizer)

    def measure(self, model: Seq2Seq, prepared: EvaluationData) -> TranslationReport:
        options = prepared.request.options
        parallel, encoded = prepared.content
        beam = Beam(width=options.beam, length_penalty=options.length_penalty)
        request = prepared.request
        translator = self.translator(model, request.config.generation, request.tokenizer)
        translations = translator.translate(parallel.sources, beam, batch_size=64)
        texts = tuple(each[0].text for each in translations)
        search = f"beam {options.beam}, length penalty {options.length_penalty:g}"
        return TranslationReport(
            texts,
            parallel,
            overlap(texts, parallel.targets, options.bleu_tokenize),
            loss(model, encoded),
            f"{search}, {options.describe(prepared.name)}",
        )


def loss(model: Seq2Seq, encoded: data.EncodedPairs, batch: int = 64) -> float:
    """Nats per target token, end mark included, without label smoothing."""
    nats, count = 0.0, 0
    with inference_mode(model) as device:
        for each in data.evaluation_pairs(encoded, batch):
            sums, counts = model.loss(tensors(each, device))
            nats += float(sums.double().sum())
            count += int(counts.sum())
    return nats / count


def tensors(padded: data.PaddedPairs, device: torch.device | None = None) -> PairBatch:
    """A batch as tensors; a side without padding has no mask."""
    source_mask, target_mask = padded.source_attention_mask, padded.target_attention_mask
    return PairBatch(
        torch.from_numpy(padded.source).to(device),
        torch.from_numpy(padded.target).to(device),
        torch.from_numpy(padded.targets).to(device),
        None if source_mask.all() else torch.from_numpy(source_mask).to(device),
        None if target_mask.all() else torch.from_numpy(target_mask).to(device),
    )


def tokenizer_of(config: DataConfig, training: data.Pairs) -> Tokenizer:
    """Train one tokenizer for both sides."""
    size = None if config.tokenizer == "bytes" else config.vocabulary
    return train_tokenizer(config.tokenizer, (*training.sources, *training.targets), size)


def left_out(count: int, total: int, length: int) -> str:
    """The note on pairs that are too long."""
    return f"{count:,} of {total:,} pairs have more than {length} tokens on a side and are left out"


def as_texts(given: data.Pairs) -> tuple[str, ...]:
    """Both sides of each pair as one text."""
    both = zip(given.sources, given.targets, strict=True)
    return tuple(f"{source}\t{target}" for source, target in both)


def fitting_rows(encoded: data.EncodedPairs, length: int) -> list[int]:
    """Indices of the pairs that fit into a model of this length."""
    return [row for row, longest in enumerate(encoded.lengths.tolist()) if longest <= length]


def pairs(
    config: DataConfig, folders: data.DataFolders, seed: int
) -> tuple[data.Pairs, data.Pairs, tuple[str, ...]]:
    """The training pairs, the validation pairs, and notes on them."""
    notes: tuple[str, ...] = ()
    if config.source in data.CORPORA:
        corpus = pair_corpus(config.source)
        training = corpus.read("train", folders)
        if config.validation is None and "validation" in corpus.parts:
            return training, corpus.read("validation", folders), notes
    else:
        training, notes = _read_pairs(config, config.source)
    if config.validation is not None:
        validation, validation_notes = _read_pairs(config, config.validation)
        return training, validation, notes + validation_notes
    return *data.split_pairs(training, config.validation_fraction, seed), notes


def pair_corpus(name: str) -> data.PairCorpus:
    """A corpus by name that has pairs; ValueError for any other."""
    corpus = data.corpus(name)
    if not isinstance(corpus, data.PairCorpus):
        names = [n for n, each in data.CORPORA.items() if isinstance(each, data.PairCorpus)]
        raise ValueError(
            f"{corpus.name} has no pairs, but a translator learns from them: choose "
            f"{', '.join(names)}, or two files as in train.en,train.de"
        )
    return corpus


def _read_pairs(config: DataConfig, source: str) -> tuple[data.Pairs, tuple[str, ...]]:
    return data.read_pairs(source, config.source_column, config.target_column)
