"""Translation: an encoder-decoder learns to turn one sequence into another."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from clearformer import data
from clearformer.config import DataConfig, Marks, RunConfig, Seq2SeqConfig
from clearformer.config import Sides as TellingIds
from clearformer.core.model import PairBatch, Seq2Seq
from clearformer.generate.beam import Beam
from clearformer.generate.translate import Translator
from clearformer.tasks.bleu import Overlap, overlap, sentence_chrf
from clearformer.tasks.measured import Measured, evaluating
from clearformer.tasks.task import (
    EvaluationData,
    EvaluationRequest,
    LoadedTask,
    Material,
    Report,
    Sides,
    Task,
)
from clearformer.text import Tokenizer
from clearformer.text import train as train_tokenizer

# Pairs that are evaluated during training: an indicator that costs little beside it.
# `clearformer evaluate` takes all.
MOST_VALIDATION = 500
SAMPLED = 20_000  # pairs whose lengths stand for those of all


@dataclass(frozen=True)
class TranslationReport(Report):
    """A translator on pairs."""

    texts: tuple[str, ...]  # the translations
    pairs: data.Pairs  # what they are of
    overlap: Overlap
    loss: float  # nats a target token
    protocol: str

    @property
    def metrics(self) -> dict[str, float]:
        found = self.overlap
        return {
            "loss": self.loss,
            "bleu": found.bleu,
            "chrf": found.chrf,
            "exact": found.exact,
        }

    def lines(self, in_float32: TranslationReport | None = None) -> list[str]:
        found = self.overlap
        return [
            f"BLEU         {found.bleu:.2f}   {found.bleu_signature}",
            f"chrF         {found.chrf:.2f}   {found.chrf_signature}",
            f"exact match  {found.exact:.4f} on {found.sentences:,} pairs",
            f"loss         {self.loss:.4f} nats a target token, end mark included, not smoothed",
            f"protocol: {self.protocol}",
        ]


class TranslationPairs(LoadedTask):
    """Pairs of a source and a target."""

    def _load(
        self, config: RunConfig, places: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        assert isinstance(config.model, Seq2SeqConfig)
        training, validation, notes = pairs(config.data, places, config.train.seed)
        self.tokenizer = tokenizer or tokenizer_of(config.data, training)
        # The marks come after the tokenizer's ids, so any tokenizer will do.
        marks = Marks(end=self.tokenizer.size, start=self.tokenizer.size + 1)
        encoded = data.encode_pairs(training, self.tokenizer, marks.start, marks.end)
        reads, writes = data.distinctive_tokens(encoded)
        model = replace(
            config.model,
            vocabulary=self.tokenizer.size + 2,
            marks=marks,
            sides=TellingIds(source=reads, target=writes),
        )
        self.config = replace(config, model=model)
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
        known = set(zip(training.sources, training.targets, strict=True))
        held = zip(validation.sources, validation.targets, strict=True)
        repeated = sum(pair in known for pair in held)
        if repeated:
            notes += (
                f"{repeated:,} of {len(validation):,} validation pairs also stand in the training",
            )
        self.notes = notes
        self.batches = data.PairBatches(
            self.training, config.train.batch_size, config.train.batch_tokens, config.train.seed
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{self.training.sha256()} {self.encoded.sha256()}"

    def _validation(self, validation: data.Pairs) -> tuple[data.Pairs, data.EncodedPairs]:
        """Some of the validation pairs, evenly taken, of those that fit."""
        marks = self.model_config.marks
        assert marks is not None
        every = data.encode_pairs(validation, self.tokenizer, marks.start, marks.end)
        fitting = fitting_rows(every, self.model_config.length)
        if not fitting:
            raise ValueError(
                f"{validation.name}: each of its {len(validation):,} validation pairs has more "
                f"than {self.model_config.length} tokens on a side: use a larger --length"
            )
        chosen = fitting[:: -(-len(fitting) // MOST_VALIDATION)]
        return validation.select(chosen), every.select(chosen)

    def batch(self, step: int) -> PairBatch:
        return tensors(self.batches.batch(step))

    def evaluate(self, model: Seq2Seq) -> Measured:
        translator = Translator(model, self.model_config, self.tokenizer)
        # An untrained model does not know where to stop.
        most = 10 + 3 * max(len(ids) for ids in self.encoded.targets) // 2
        # In full precision, as it will be used: caches are made for the weights' own.
        with torch.autocast(next(model.parameters()).device.type, enabled=False):
            found = translator.translate(
                self.validation.sources, Beam(width=1), batch_size=128, max_tokens=most
            )
        texts = [each[0].text for each in found]
        figures = overlap(texts, self.validation.targets)
        told = {
            "loss": loss(model, self.encoded),
            "bleu": figures.bleu,
            "chrf": figures.chrf,
            "exact": figures.exact,
        }
        protocol = (
            f"{len(texts):,} pairs of at most {self.model_config.length} tokens a side, each "
            f"translated by its likeliest token in turn (beam 1)"
        )
        return Measured(told, sentence_chrf(texts, self.validation.targets), protocol)

    def sample(self, model: Seq2Seq) -> str:
        """A source of the validation pairs, and the model's translation."""
        source = self.validation.sources[len(self.validation) // 2]
        translator = Translator(model, self.model_config, self.tokenizer)
        found = translator.translate([source], Beam(width=1), max_tokens=2 * len(source) + 10)
        return f"{source} -> {found[0][0].text}"

    def chance(self) -> float:
        return math.log(self.model_config.vocabulary)


class TranslationTask(Task):
    """Predict the target of a source; in training the model is given the target so far."""

    # chrF and not BLEU: it tells good from bad where a target is a single word, too.
    metric: ClassVar[str] = "chrf"
    larger_is_better: ClassVar[bool] = True
    counted: ClassVar[str] = "target tokens"
    padded: ClassVar[bool] = True
    loaded: ClassVar[type[LoadedTask] | None] = TranslationPairs

    def training_material(self, config: RunConfig, places: data.DataFolders) -> Material:
        training, _, _ = pairs(config.data, places, config.train.seed)
        return as_texts(training)

    def example(self, config: RunConfig, rows: int, sides: Sides) -> tuple[Any, Any]:
        length = config.model.length
        source, target = (torch.zeros(rows, min(length, side), dtype=torch.long) for side in sides)
        return PairBatch(source, target, target, source == 0, target == 0), None

    def rows(self, config: RunConfig, sides: Sides) -> int:
        """Pairs in a whole batch, which has a number of tokens where the config says so."""
        train = config.train
        if train.batch_tokens is None:
            return train.batch_size
        return max(1, min(train.batch_size, train.batch_tokens // self.length(sides)))

    def length(self, sides: Sides) -> int:
        return min(self.model.length, max(sides))

    def sides(self, config: RunConfig, places: data.DataFolders) -> tuple[Sides, Sides]:
        """Padding counted, by a sample that is read with a tokenizer of its own."""
        training, _, _ = pairs(config.data, places, config.train.seed)
        training = training.select(range(0, len(training), -(-len(training) // SAMPLED)))
        encoded = data.encode_pairs(training, tokenizer_of(config.data, training), 0, 0)
        encoded = encoded.select(fitting_rows(encoded, config.model.length))
        train = config.train
        batches = data.PairBatches(encoded, train.batch_size, train.batch_tokens, train.seed)
        every = [batches.batch(step) for step in range(batches.steps_per_epoch)]
        largest = max(every, key=lambda each: each.source.size + each.target.size)
        usual_source, usual_target = (
            round(sum(side.size for side in padded) / len(encoded))
            for padded in zip(*((each.source, each.target) for each in every), strict=True)
        )
        return (largest.source.shape[1], largest.target.shape[1]), (usual_source, usual_target)

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        found, notes = self._pairs(request)
        marks = self._marks()
        encoded = data.encode_pairs(found, request.tokenizer, marks.start, marks.end)
        fitting = fitting_rows(encoded, self.model.length)
        if len(fitting) < len(found):
            notes += (left_out(len(found) - len(fitting), len(found), self.model.length),)
        if not fitting:
            raise ValueError(f"{found.name}: {notes[-1]}, and nothing is left to evaluate")
        found = found.select(fitting)
        content = (found, encoded.select(fitting))
        return EvaluationData(request, found.name, as_texts(found), content, notes)

    def _pairs(self, request: EvaluationRequest) -> tuple[data.Pairs, tuple[str, ...]]:
        config, options, places = request.config, request.options, request.places
        settings = replace(
            config.data,
            source_column=options.source_column or config.data.source_column,
            target_column=options.target_column or config.data.target_column,
        )
        if options.own_part is not None:
            learned, held_back, notes = pairs(settings, places, config.train.seed)
            return (learned, held_back)[options.own_part], notes
        source = options.data or settings.source
        if source in data.CORPORA:
            return pair_corpus(source).read(options.part, places), ()
        return read(settings, source)

    def _marks(self) -> Marks:
        assert isinstance(self.model, Seq2SeqConfig)
        assert self.model.marks is not None
        return self.model.marks

    def translator(self, model: Any, tokenizer: Tokenizer, name: object = None) -> Translator:
        """The model, ready to translate; `name` is that of the model in messages."""
        if not isinstance(model, Seq2Seq) or not isinstance(self.model, Seq2SeqConfig):
            raise TypeError(f"{type(model).__name__} is no encoder-decoder")
        if self.model.marks is None:
            raise ValueError(f"{name}: its config has no marks, so nobody knows where targets end")
        return Translator(model, self.model, tokenizer)

    def measure(self, model: Seq2Seq, found: EvaluationData) -> TranslationReport:
        options = found.request.options
        given, encoded = found.content
        how = Beam(width=options.beam, length_penalty=options.length_penalty)
        translations = self.translator(model, found.request.tokenizer).translate(
            given.sources, how, batch_size=64
        )
        texts = tuple(each[0].text for each in translations)
        search = f"beam {options.beam}, length penalty {options.length_penalty:g}"
        return TranslationReport(
            texts,
            given,
            overlap(texts, given.targets),
            loss(model, encoded),
            f"{search}, {options.describe(found.name)}",
        )


def loss(model: Seq2Seq, encoded: data.EncodedPairs, batch: int = 64) -> float:
    """Nats a target token, end mark included, without smoothing."""
    nats, count = 0.0, 0
    with evaluating(model) as device:
        for each in data.evaluation_pairs(encoded, batch):
            sums, counts = model.loss(tensors(each, device))
            nats += float(sums.double().sum())
            count += int(counts.sum())
    return nats / count


def tensors(padded: data.PaddedPairs, device: torch.device | None = None) -> PairBatch:
    """A batch as the model takes it; a side without padding needs no mask."""
    source_mask, target_mask = padded.source_attention_mask, padded.target_attention_mask
    return PairBatch(
        torch.from_numpy(padded.source).to(device),
        torch.from_numpy(padded.target).to(device),
        torch.from_numpy(padded.targets).to(device),
        None if source_mask.all() else torch.from_numpy(source_mask).to(device),
        None if target_mask.all() else torch.from_numpy(target_mask).to(device),
    )


def tokenizer_of(config: DataConfig, training: data.Pairs) -> Tokenizer:
    """One tokenizer for both sides."""
    size = None if config.tokenizer == "bytes" else config.vocabulary
    return train_tokenizer(config.tokenizer, (*training.sources, *training.targets), size)


def left_out(few: int, total: int, length: int) -> str:
    """The note on pairs that do not fit."""
    return f"{few:,} of {total:,} pairs have more than {length} tokens on a side and are left out"


def as_texts(found: data.Pairs) -> tuple[str, ...]:
    """Both sides of each pair as one text."""
    both = zip(found.sources, found.targets, strict=True)
    return tuple(f"{source}\t{target}" for source, target in both)


def fitting_rows(encoded: data.EncodedPairs, length: int) -> list[int]:
    """The pairs that a model of this length can read and write."""
    return [row for row, longest in enumerate(encoded.lengths.tolist()) if longest <= length]


def pairs(
    config: DataConfig, places: data.DataFolders, seed: int
) -> tuple[data.Pairs, data.Pairs, tuple[str, ...]]:
    """The training pairs, the validation pairs, and notes on them."""
    notes: tuple[str, ...] = ()
    if config.source in data.CORPORA:
        corpus = pair_corpus(config.source)
        training = corpus.read("train", places)
        if config.validation is None and "validation" in corpus.parts:
            return training, corpus.read("validation", places), notes
    else:
        training, notes = read(config, config.source)
    if config.validation is not None:
        validation, more = read(config, config.validation)
        return training, validation, notes + more
    return *data.split_pairs(training, config.validation_fraction, seed), notes


def pair_corpus(name: str) -> data.PairCorpus:
    """A corpus by name that has pairs; ValueError for any other."""
    corpus = data.corpus(name)
    if not isinstance(corpus, data.PairCorpus):
        known = [n for n, each in data.CORPORA.items() if isinstance(each, data.PairCorpus)]
        raise ValueError(
            f"{corpus.name} has no pairs, but a translator learns from them: choose "
            f"{', '.join(known)}, or two files as in train.en,train.de"
        )
    return corpus


def read(config: DataConfig, source: str) -> tuple[data.Pairs, tuple[str, ...]]:
    return data.read_pairs(source, config.source_column, config.target_column)
