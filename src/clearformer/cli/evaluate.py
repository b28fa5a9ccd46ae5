"""`clearformer evaluate RUN`: the figures of a trained model, with their protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from clearformer.cli.inputs import announce, tell_cut
from clearformer.cli.output import say
from clearformer.escape import escape_line

if TYPE_CHECKING:
    from clearformer.core.model import Transformer
    from clearformer.data import Pairs, TextSource
    from clearformer.runs.contamination import Material
    from clearformer.runs.load import Opened, OpenedTranslator


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained model on text, labelled texts or pairs that it has not seen."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), or one of its checkpoints."""
    data: str | None = None
    """A file or corpus; none: what the run held back."""
    part: str = "validation"
    """Which part of a corpus, such as validation or test; train, without --data: what the run was
    trained on."""
    context: int | None = None
    """Tokens that a prediction may use; none: the model's length."""
    stride: int | None = None
    """Tokens between two windows, smaller is slower and better; none: half the context."""
    memory: int | None = None
    """States that a Transformer-XL remembers, more than in training if you like; none: as many."""
    most: int = 1_000_000
    """Bytes of a text to score; of a masked model tokens."""
    text: str | None = None
    """Column of the texts, in a table; none: as in training."""
    label: str | None = None
    """Column of the labels, in a table; none: as in training."""
    unknown_label: Literal["refuse", "skip"] = "refuse"
    """What to do with rows whose label the training had not."""
    weights: Literal["float32", "int8"] = "float32"
    """int8: what the model is worth with its weights in eight bits, beside what it was."""
    against: Path | None = None
    """A run in int8: the one in float32 to measure beside it; none: the one it was made from."""
    source_column: str | None = None
    """Column of what is translated, in a table of pairs; none: as in training."""
    target_column: str | None = None
    """Column of what it becomes."""
    beam: int = 4
    """A translator: versions followed at once; 1: always the likeliest token."""
    length_penalty: float = 1.0
    """A translator: above 0 helps long translations."""
    out: Path | None = None
    """A translator: write the translations here, a line for each; as a table with both sides if it
    ends in .csv, .tsv, .jsonl or .json."""
    data_dir: Path | None = None
    """Where corpora lie; none: CLEARFORMER_DATA, then the cache, then a download."""

    def run(self) -> None:
        from clearformer.cli.tables import require_place
        from clearformer.config import Classifier, MaskedToken, Pretraining, UntrainedHead
        from clearformer.data.write_tables import require_lines_or_table
        from clearformer.runs.load import is_translator, open_run, open_translator

        require_place(self.out)
        announce(self.data, "data")
        if self.out is not None:
            require_lines_or_table(self.out)
        if is_translator(self.run_folder):
            for flag, default in (("weights", "float32"), ("against", None)):
                if getattr(self, flag) != default:
                    raise ValueError(f"--{flag} is for models of one stack: leave it out")
            translator = open_translator(self.run_folder)
            self._require_part(translator.config.data.source)
            self._pairs(translator)
            return
        opened = open_run(self.run_folder)
        self._require_part(opened.config.data.source)
        if self.out is not None:
            raise ValueError(f"--out is for translations, but {self.run_folder} is no translator")
        if isinstance(opened.config.model.head, UntrainedHead):
            raise ValueError(
                f"{self.run_folder} has the head {type(opened.config.model.head).__name__}, which "
                f"has nothing to evaluate here: use clearformer embed, or give it another head "
                f"with clearformer train classify --from"
            )
        self._head(opened)
        if isinstance(opened.config.model.head, Classifier):
            self._labels(opened)
        elif isinstance(opened.config.model.head, MaskedToken | Pretraining):
            self._hidden(opened)
        else:
            self._text(opened)

    def _require_part(self, source: str) -> None:
        """A file of one's own has no parts but what was learned and what was held back."""
        from clearformer import data

        own = ("validation", "train")
        if self.data is None and self.part not in own and source not in data.CORPORA:
            raise ValueError(
                f"--part is {self.part}, but {source} is no corpus and has only the parts "
                f"{' and '.join(own)} of the run: choose one of them, or name a file with --data"
            )

    def _head(self, opened: Opened | OpenedTranslator) -> None:
        """Which weights are evaluated: the checkpoint, why it, and what they are."""
        from clearformer.runs.load import has_int8

        found, train = opened.found, opened.config.train
        if "averaged" in found.manifest:
            steps = ", ".join(map(str, found.manifest["averaged"]))
            weights = f"the mean of the weights of the steps {steps}"
        elif has_int8(found):
            weights = "weights in int8"
        elif train.ema is not None:
            weights = f"averaged weights (train.ema {train.ema:g})"
        else:
            weights = "weights as trained"
        say(f"{found.folder}: {opened.config.model.name}, step {found.step}, {weights}")
        if opened.note is not None:
            say(f"note: {opened.note}")

    @property
    def _own(self) -> int | None:
        """Which part of the run's own data is meant: 0 what it learned from, 1 what it held back;
        none: other data."""
        return {"train": 0, "validation": 1}.get(self.part) if self.data is None else None

    def _remark(self, opened: Opened | OpenedTranslator, evaluated: Material) -> None:
        """Say what the model was trained on of what it is evaluated on."""
        from clearformer.cli.train import places
        from clearformer.runs.contamination import lineage, remarks

        if self._own == 0:
            say("training part: the figures are of data that the run was trained on")
        known = lineage(opened.found, opened.config)
        held_back = self._own is not None
        for each in remarks(known, evaluated, places(self.data_dir), held_back=held_back):
            say(f"note: {each}")

    def _pairs(self, opened: OpenedTranslator) -> None:
        from clearformer import data
        from clearformer.data.write_tables import require_fields, write_translations
        from clearformer.generate.beam import Beam
        from clearformer.runs.contamination import of_pairs
        from clearformer.tasks.bleu import overlap
        from clearformer.tasks.translation import fitting_rows, loss

        how = Beam(width=self.beam, length_penalty=self.length_penalty)
        translator = opened.translator
        self._head(opened)
        pairs, notes = self._read_pairs(opened)
        marks = translator.config.marks
        assert marks is not None
        encoded = data.encode_pairs(pairs, translator.tokenizer, marks.start, marks.end)
        fitting = fitting_rows(encoded, translator.config.length)
        if len(fitting) < len(pairs):
            notes += (
                f"{len(pairs) - len(fitting):,} of {len(pairs):,} pairs have more than "
                f"{translator.config.length} tokens on a side and are left out",
            )
        if not fitting:
            raise ValueError(f"{pairs.name}: {notes[-1]}, and nothing is left to evaluate")
        for note in notes:
            say(f"note: {note}")
        pairs = pairs.select(fitting)
        self._remark(opened, of_pairs(pairs))
        if self.out is not None:
            require_fields(self.out, (*pairs.sources, *pairs.targets))
        translations = translator.translate(pairs.sources, how, batch_size=64)
        texts = [each[0].text for each in translations]
        found = overlap(texts, pairs.targets)
        say(f"BLEU         {found.bleu:.2f}   {found.bleu_signature}")
        say(f"chrF         {found.chrf:.2f}   {found.chrf_signature}")
        say(f"exact match  {found.exact:.4f} on {found.sentences:,} pairs")
        nats = loss(translator.model, encoded.select(fitting))
        say(f"loss         {nats:.4f} nats a target token, end mark included, not smoothed")
        search = f"beam {self.beam}, length penalty {self.length_penalty:g}"
        say(f"protocol: {search}, {self._data(pairs.name)}")
        if self.out is not None:
            write_translations(self.out, pairs, texts)

    def _read_pairs(self, opened: OpenedTranslator) -> tuple[Pairs, tuple[str, ...]]:
        from clearformer import data
        from clearformer.cli.train import places
        from clearformer.tasks.translation import pair_corpus, pairs, read

        settings = opened.config.data
        settings = replace(
            settings,
            source_column=self.source_column or settings.source_column,
            target_column=self.target_column or settings.target_column,
        )
        source = self.data or settings.source
        where = places(self.data_dir)
        if self._own is not None:
            learned, held, notes = pairs(settings, where, opened.config.train.seed)
            return (learned, held)[self._own], notes
        if source in data.CORPORA:
            return pair_corpus(source).read(self.part, where), ()
        return read(settings, source)

    def _text(self, opened: Opened) -> None:
        import lzma

        from clearformer import data
        from clearformer.cli.train import places
        from clearformer.config import HiddenMemory
        from clearformer.inference.int8 import quantize
        from clearformer.tasks.evaluate import Compression, compress, compress_segments
        from clearformer.tasks.objectives import beginning, texts

        length, past = opened.config.model.length, opened.config.model.past
        if self.memory is not None and not isinstance(past, HiddenMemory):
            raise ValueError(
                f"--memory is {self.memory}, but {opened.config.model.name} has no memory: "
                f"leave it out, or train a Transformer-XL (clearformer train xl-small)"
            )
        for name in ("context", "stride", "memory"):
            value, least = getattr(self, name), 0 if name == "memory" else 1
            if value is not None and value < least:
                raise ValueError(f"--{name} is {value}, but it must be at least {least}")
        context = self.context or length
        stride = self.stride or max(1, context // 2)
        where = places(self.data_dir)
        cache = (where.cache or Path(".")) / "tokens"
        if self._own is not None:
            text = texts(opened.config.data, where, length)[self._own]
            if self._own == 1:
                self._note_changed(opened, text, cache)
        else:
            source = self.data or opened.config.data.source
            corpus = data.CORPORA.get(source)
            if corpus is None:
                text = data.open_text(source)
            elif isinstance(corpus, data.TextCorpus):
                text = corpus.read(self.part, where)
            else:
                raise ValueError(f"{source} is a table, but {self.run_folder} is a generator")
        whole, text = text.size, beginning(text, self.most)
        if text.size < whole:
            say(f"note: the first {text.size:,} of {whole:,} bytes are scored: see --most")
        tokens = data.prepare(text, opened.tokenizer, cache)
        self._remark(opened, text)

        def measure(model: Transformer) -> Compression:
            if not isinstance(past, HiddenMemory):
                return compress(model, tokens, opened.tokenizer, context, stride)
            if self.stride is not None:
                raise ValueError("--stride is for windows, but this model goes on: use --memory")
            return compress_segments(
                model,
                opened.config.model,
                tokens,
                opened.tokenizer,
                segment=context,
                memory=self.memory,
            )

        floats = self._in_floats(opened)
        before = None if floats is None else measure(floats).bits_per_byte
        if self.weights == "int8":
            quantize(opened.model)
        found = measure(opened.model)
        if before is not None:
            say(f"in float32          {before:.4f} bits per byte")
            say(f"int8 costs          {found.bits_per_byte - before:+.4f} bits per byte")
        packed = len(lzma.compress(text.read(), preset=9 | lzma.PRESET_EXTREME))
        say(f"bits per byte       {found.bits_per_byte:.4f}")
        say(f"bits per character  {found.bits_per_character:.4f}")
        say(f"loss per token      {found.loss:.4f}")
        say(f"perplexity          {found.perplexity:.4f} per token, stride {found.stride}")
        say(f"xz -9e, beside it   {8 * packed / text.size:.4f} bits per byte")
        say(f"protocol: {found.protocol}; {self._data(text.name)}")

    def _data(self, name: str) -> str:
        """What was evaluated, by its part of the run's own data or by its name."""
        part = {0: "training part of ", 1: "held back by the run, of ", None: ""}[self._own]
        return f"{part}{name}"

    def _note_changed(self, opened: Opened, text: TextSource, cache: Path) -> None:
        """Say if the text that is held back is another than it was in training."""
        from clearformer.data import prepare
        from clearformer.tasks.objectives import MOST_VALIDATION, beginning

        known = opened.found.manifest.get("data")
        found = prepare(beginning(text, MOST_VALIDATION), opened.tokenizer, cache)
        if isinstance(known, str) and found.sha256 not in known.split():
            say(
                "note: the text that is held back is not the one of the training: the file was "
                "changed since, and some of this text may have been learned"
            )

    def _in_floats(self, opened: Opened) -> Transformer | None:
        """The model in float32 that one in int8 is to be measured beside, if there is one."""
        from clearformer.hub.quantized import SOURCE_RUN
        from clearformer.runs.load import has_int8, open_run, require_floats

        if not has_int8(opened.found):
            if self.against is not None:
                raise ValueError(
                    f"--against is {self.against}, but {self.run_folder} is no run in int8: leave "
                    f"it out"
                )
            return opened.model if self.weights == "int8" else None
        made_from = self.against or Path(str(opened.found.manifest.get(SOURCE_RUN)))
        try:
            other = open_run(made_from)
        except ValueError:
            if self.against is not None:
                raise
            say(f"note: {made_from} is gone, so what int8 costs cannot be told: see --against")
            return None
        require_floats(other.found)
        if other.config.model != opened.config.model:
            raise ValueError(f"{made_from} is another model than {self.run_folder} was made from")
        return other.model

    def _hidden(self, opened: Opened) -> None:
        from clearformer import data
        from clearformer.cli.train import places
        from clearformer.inference.int8 import quantize
        from clearformer.tasks.masked import evaluation_batches, measure, open_source, sources

        config, where = opened.config, places(self.data_dir)
        if self._own is not None:
            both = sources(config.data, where, config.model.length, config.train.seed)
            source = both[self._own]
        else:
            name = self.data or config.data.source
            source = open_source(name, self.part, self.text or config.data.text, where)
        self._remark(opened, source.material)
        documents = data.encode_documents(source.name, source.documents(), opened.tokenizer)
        batches = evaluation_batches(config, documents, opened.tokenizer, self.most)
        if self.weights == "int8":
            for name, value in measure(opened.model, batches).figures().items():
                say(f"{name.replace('_', ' ') + ', in float32':24}{value:.4f}")
            quantize(opened.model)
        found = measure(opened.model, batches)
        for name, value in found.figures().items():
            say(f"{name.replace('_', ' '):24}{value:.4f}")
        say(f"protocol: {found.protocol(config)}; {self._data(source.name)}")

    def _labels(self, opened: Opened) -> None:
        import torch

        from clearformer import data
        from clearformer.cli.train import places
        from clearformer.data.rows import count_truncated
        from clearformer.inference.int8 import quantize
        from clearformer.tasks.evaluate import predict, report, rows_protocol, standard_error
        from clearformer.tasks.objectives import tables

        where = places(self.data_dir)
        trained = opened.config.data
        if self._own is not None:
            table = tables(opened.config.data, where, opened.config.train.seed)[self._own]
        else:
            source = self.data or opened.config.data.source
            corpus = data.CORPORA.get(source)
            if corpus is None:
                columns = (self.text or trained.text, self.label or trained.label)
                table = data.read_table(source, *columns)
            elif isinstance(corpus, data.LabelledCorpus):
                table = corpus.read(self.part, where)
            else:
                raise ValueError(f"{source} has no labels, but {self.run_folder} is a classifier")
        head = opened.config.model.head
        names = head.names  # type: ignore[union-attr]
        assert names is not None
        left_out = 0
        if self.unknown_label == "skip" and table.labels is not None:
            known = [row for row, label in enumerate(table.labels) if label in names]
            left_out = len(table) - len(known)
            if left_out:
                say(f"note: {left_out:,} rows with unknown labels are left out")
            table = table.select(known)
        self._remark(opened, table.texts)
        rows = data.encode_rows(table, opened.tokenizer, names)
        labels = torch.from_numpy(rows.labels)
        if self.weights == "int8":
            before = report(predict(opened.model, rows, opened.config), labels, names)
            say(f"in float32   {before.accuracy:.4f}, loss {before.loss:.4f}")
            quantize(opened.model)
        guesses = predict(opened.model, rows, opened.config)
        length = opened.config.model.length
        tell_cut(count_truncated(rows, length), len(rows), length)
        found = report(guesses, labels, names)
        error = standard_error((guesses.argmax(dim=1) == labels).float().tolist())
        sure = "" if error is None else f", standard error {error:.4f}"
        say(f"accuracy     {found.accuracy:.4f} on {len(rows):,} texts{sure}")
        if left_out:
            share = found.accuracy * len(rows) / (len(rows) + left_out)
            say(f"             {share:.4f} with the {left_out:,} left out counted as wrong")
        say(f"loss         {found.loss:.4f}")
        say(f"calibration  {found.calibration:.4f} (mean gap of confidence and accuracy)")
        how = rows_protocol(rows, length, trained.cut)
        say(f"protocol: {how}; {self._data(table.name)}")
        say()
        shown = [escape_line(name) for name in names]
        width = max(len(name) for name in (*shown, "class"))
        say(f"{'class':{width}}   texts  precision  recall      F1")
        for name, (_, count, precision, recall, f1) in zip(shown, found.by_class(), strict=True):
            # Of a class without texts nothing can be recalled: no figure, and not zero.
            rest = f"{recall:.4f}  {f1:.4f}" if count else "     -       -"
            say(f"{name:{width}} {count:7,}     {precision:.4f}  {rest}")
        say()
        say("confusion: a row for each true class, a column for each guess")
        cell = max(width, 7)
        say(" " * width + "".join(f" {name:>{cell}}" for name in shown))
        for name, row in zip(shown, found.confusion.tolist(), strict=True):
            say(f"{name:{width}}" + "".join(f" {count:>{cell},}" for count in row))
