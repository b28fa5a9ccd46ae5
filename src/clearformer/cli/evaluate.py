"""`clearformer evaluate RUN`: metrics of a trained model, with their protocol."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from clearformer.arguments import BleuTokenize, Weights
from clearformer.cli.inputs import announce, tell_cut
from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import say, with_flags, write_json
from clearformer.table_options import LabelledFormat

if TYPE_CHECKING:
    from clearformer.compressor.proof import Claim, Proof
    from clearformer.model import Model
    from clearformer.runs.compare_classifiers import Comparison
    from clearformer.runs.evaluate_model import Evaluation, Say
    from clearformer.tasks.task import EvaluationData, EvaluationOptions


@dataclass(frozen=True)
class Evaluate(ModelCommand):
    """Measure a trained model on text, labelled texts, pairs or questions it has not seen."""

    other: tyro.conf.Positional[Path | None] = None
    """Another run: compare the two on the same texts or pairs, with a paired test."""
    data: str | None = None
    """A file or corpus; none: the validation data of the run."""
    part: str = "validation"
    """Which part of a corpus, such as validation or test; train, without --data: what the run was
    trained on."""
    context: int | None = None
    """Tokens that a prediction may use; none: the model's length."""
    stride: int | None = None
    """Tokens between two windows, smaller is slower and better; none: half the context."""
    memory: int | None = None
    """Memory length of a Transformer-XL, may exceed that of training; none: as in training."""
    max_bytes: int = 1_000_000
    """Bytes of a text to score; for a masked model, tokens."""
    text: str | None = None
    """Column of the texts, in a table; none: as in training."""
    label: str | None = None
    """Column of the labels, in a table; none: as in training."""
    second: str | None = None
    """Column of the second texts, in a table of sentence pairs; none: as in training."""
    unknown_label: Literal["refuse", "skip"] = "refuse"
    """What to do with rows whose label did not occur in training."""
    weights: Weights = "float32"
    """int8, int4: evaluate with such weights, and compare with the original weights."""
    against: Path | None = None
    """For a run in int8: the float32 run to compare with; none: the one it was made from."""
    source_column: str | None = None
    """Column of the sources, in a table of pairs; none: as in training."""
    target_column: str | None = None
    """Column of the targets."""
    beam: int = 4
    """A translator: number of beams; 1: greedy."""
    length_penalty: float = 1.0
    """A translator: above 0 favours long translations."""
    bleu_tokenize: BleuTokenize = "13a"
    """A translator: how BLEU splits texts into words, as in sacrebleu; none: at spaces."""
    out: Path | None = None
    """A classifier: write every text here (.csv, .tsv, .jsonl or .json) with all columns of its
    table, predicted, probability and correct. A translator: the translations, a line for each; as a
    table with both sides if it ends in one of these."""
    worst_first: bool = False
    """In that table, put the most confident mistakes first."""
    probabilities: bool = False
    """In that table, add a column with the probability of each class."""
    precision: float | None = None
    """A classifier: find the probability from which each class has this precision, such as 0.9."""
    recall: float | None = None
    """Likewise for this recall."""
    prove: bool = False
    """A language model: also compress the text, decompress it, and compare the bits."""
    dynamic: bool = False
    """A language model: also let it learn from each window that it has predicted
    (dynamic evaluation); with --prove, in the encoder and the decoder."""
    counts: int = 0
    """A language model: also mix its predictions with counts of what followed the last 1 to this
    many tokens so far, at most 8; with --prove, in the encoder and the decoder."""
    data_dir: Path | None = None
    """Folder with corpora; none: CLEARFORMER_DATA, then the cache, then a download."""
    verify: bool = False
    """Run `verify` first, and warn if a bug makes the metrics unreliable."""
    json: bool = False
    """Print the figures as one line of JSON."""
    table: LabelledFormat = LabelledFormat()

    def run(self) -> None:
        from clearformer.model import load

        self._require_places()
        announce(self.data, "data")
        model = load(self.run_folder, device=self.device)
        self._require_kind(model)
        notes: list[str] = []
        said = notes.append if self.json else _say_note
        if not self.json:
            say(_weights(model))
        for note in model.notes:
            said(note)
        if self.verify:
            from clearformer.cli.verify import warn

            warn(model.module)
        evaluator = model.evaluator(self._options(), self.data_dir)
        prepared = evaluator.prepare(said)
        self._require_writable(model, prepared)
        found = evaluator.measure(prepared, said, weights=self.weights, against=self.against)
        report: Any = found.report
        tell_cut(report.cut, report.total, model.config.length)
        compared = None if self.other is None else self._compare(found, prepared, said)
        if self.json:
            document = {"run": str(self.run_folder), **found.document(), "notes": notes}
            if compared is not None:
                document["compared"] = compared.document()
            if self._codes:
                document["code"] = self._code(model, report.text.read()).document()
            write_json(document)
        else:
            for line in (*found.lines(), *(() if compared is None else compared.lines())):
                say(line)
        if self.out is not None:
            self._write(self.out, model, found)
        if self._codes and not self.json:
            for line in self._code(model, report.text.read()).lines():
                say(line)

    def _compare(self, found: Evaluation, prepared: EvaluationData, note: Say) -> Comparison:
        from clearformer.model import load
        from clearformer.runs.compare_classifiers import compare

        assert self.other is not None
        other = load(self.other, device=self.device)
        return compare(found, other.evaluator(self._options(), self.data_dir), prepared, note)

    def _write(self, out: Path, model: Model, found: Evaluation) -> None:
        from clearformer.data.write_tables import write_translations

        report: Any = found.report
        if "translate" in model.config.verbs:
            write_translations(out, report.pairs, report.texts)
            return
        found.write(out, probabilities=self.probabilities, worst_first=self.worst_first)
        if not self.json:
            say(f"{report.summary()}: {out}")

    @property
    def _codes(self) -> bool:
        """Whether the text is also scored as `compress` would code it."""
        return bool(self.prove or self.dynamic or self.counts)

    def _code(self, model: Model, text: bytes) -> Claim | Proof:
        """The size of the text as a decodable code, or with online learning."""
        from clearformer.cli.compress import progress_bar
        from clearformer.compressor.proof import claim, prove
        from clearformer.inference.shared_copy import shared_copy
        from clearformer.model import Model

        if self.weights != "float32":
            quantized = Model(shared_copy(model.module), model.config, model.tokenizer)
            model = quantized.quantize(self.weights)
        settings: Any = {
            "context": self.context, "stride": self.stride, "online": self.dynamic,
            "counts": self.counts,
        }  # fmt: skip
        if not self.prove:
            return claim(model, text, **settings)
        with progress_bar("proving") as progress:
            return prove(model, text, **settings, progress=progress)

    def _options(self) -> EvaluationOptions:
        from clearformer.tasks.task import EvaluationOptions

        return EvaluationOptions(
            **{each.name: getattr(self, each.name) for each in fields(EvaluationOptions)}
        )

    def _require_places(self) -> None:
        from clearformer.cli.tables import require_place
        from clearformer.data.write_tables import require_lines_or_table

        require_place(self.out)
        if self.out is not None:
            require_lines_or_table(self.out)
        if self.out is None and (self.worst_first or self.probabilities):
            flag = "--worst-first" if self.worst_first else "--probabilities"
            raise ValueError(f"{flag} is about the table of predictions: add --out errors.csv")

    def _require_kind(self, model: Model) -> None:
        """Refuse what this kind of model has no answer to."""
        from clearformer.data.write_tables import require_extension

        verbs, of_texts = model.config.verbs, model.config.head.text_task is not None
        if self.out is not None and not of_texts and "translate" not in verbs:
            raise ValueError(
                f"--out is for models that classify, predict or translate, but {self.run_folder} "
                f"is {model.config.noun}"
            )
        if self.out is not None and of_texts:
            require_extension(self.out)
        asked = {"precision": self.precision, "recall": self.recall}
        for name, value in asked.items():
            if value is not None and "classify" not in verbs:
                raise ValueError(
                    f"--{name} is for classifiers, but {self.run_folder} is {model.config.noun}"
                )
        if self.other is not None and not of_texts:
            raise ValueError(
                f"a second run is for models that classify or predict, but {self.run_folder} is "
                f"{model.config.noun}"
            )
        if self.probabilities and "classify" not in verbs:
            raise ValueError("--probabilities is for classifiers: leave it out")
        if self._codes:
            model.config.require_verb("generate", model.name)
        if self._codes and self.memory is not None:
            raise ValueError(
                "--prove, --dynamic and --counts use the memory of the training: no --memory"
            )

    def _require_writable(self, model: Model, prepared: EvaluationData) -> None:
        """Refuse a .tsv for texts with tabs or line breaks, before they are translated."""
        from clearformer.data.write_tables import require_fields

        if self.out is not None and "translate" in model.config.verbs:
            pairs, _ = prepared.content
            require_fields(self.out, (*pairs.sources, *pairs.targets))
        elif self.out is not None and isinstance(prepared.material, tuple):
            require_fields(self.out, prepared.material)


def _say_note(sentence: str) -> None:
    say(f"note: {with_flags(sentence, Evaluate)}")


def _weights(model: Model) -> str:
    """A line on the evaluated weights: checkpoint, averaging and quantization."""
    from clearformer.runs.load import has_int8

    found, train = model.checkpoint, model.run_config.train
    if found is None:
        return f"{model.name}: {model.config.name}"
    if "averaged" in found.manifest:
        steps = ", ".join(map(str, found.manifest["averaged"]))
        weights = f"the mean of the weights of the steps {steps}"
    elif has_int8(found):
        weights = "weights in int8"
    elif train.ema_decay is not None:
        weights = f"averaged weights (train.ema_decay {train.ema_decay:g})"
    else:
        weights = "weights as trained"
    return f"{found.folder}: {model.config.name}, step {found.step}, {weights}"
