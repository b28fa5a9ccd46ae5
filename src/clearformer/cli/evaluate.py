"""`clearformer evaluate RUN`: the figures of a trained model, with their protocol."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from clearformer.cli.inputs import announce, tell_cut
from clearformer.cli.output import say

if TYPE_CHECKING:
    from clearformer.runs.load import OpenedAny
    from clearformer.tasks.task import EvaluationOptions, Material


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
    verify: bool = False
    """Look for bugs in the model first, and warn where its figures cannot be trusted."""

    def run(self) -> None:
        from clearformer.cli.tables import require_place
        from clearformer.cli.train import places
        from clearformer.data.write_tables import require_fields, write_translations
        from clearformer.inference.int8 import quantize
        from clearformer.runs.load import open_any
        from clearformer.tasks.registry import task_of
        from clearformer.tasks.task import EvaluationRequest

        require_place(self.out)
        announce(self.data, "data")
        self._require_out()
        notes: list[str] = []
        opened = open_any(self.run_folder, say=notes.append)
        config, tokenizer, options = opened.config, opened.tokenizer, self._options()
        task, where = task_of(config.model), places(self.data_dir)
        self._require_flags(opened)
        say(_weights(opened))
        for note in notes:
            say(f"note: {note}")
        if self.verify:
            from clearformer.cli.verify import warn

            warn(opened.model)
        identity = opened.found.manifest.get("data")
        known = identity if isinstance(identity, str) else None
        found = task.evaluation_data(EvaluationRequest(config, tokenizer, options, where, known))
        for note in found.notes:
            say(f"note: {note}")
        self._remark(opened, found.material, options)
        if self.out is not None:
            pairs, _ = found.content
            require_fields(self.out, (*pairs.sources, *pairs.targets))
        before = None
        if (floats := self._in_floats(opened)) is not None:
            before = task.measure(floats, found)
        if self.weights == "int8":
            quantize(opened.model)
        report = task.measure(opened.model, found)
        tell_cut(report.cut, report.total, config.model.length)
        for line in report.lines(before):
            say(line)
        if self.out is not None:
            write_translations(self.out, report.pairs, report.texts)

    def _options(self) -> EvaluationOptions:
        from clearformer.tasks.task import EvaluationOptions

        return EvaluationOptions(
            **{each.name: getattr(self, each.name) for each in fields(EvaluationOptions)}
        )

    def _require_out(self) -> None:
        from clearformer.data.write_tables import require_lines_or_table

        if self.out is not None:
            require_lines_or_table(self.out)

    def _require_flags(self, opened: OpenedAny) -> None:
        """Refuse flags that are not for this model or its data."""
        from clearformer import data

        if "translate" in opened.config.model.verbs:
            for flag, default in (("weights", "float32"), ("against", None)):
                if getattr(self, flag) != default:
                    raise ValueError(f"--{flag} is for models of one stack: leave it out")
        elif self.out is not None:
            raise ValueError(f"--out is for translations, but {self.run_folder} is no translator")
        source, own = opened.config.data.source, ("validation", "train")
        if self.data is None and self.part not in own and source not in data.CORPORA:
            raise ValueError(
                f"--part is {self.part}, but {source} is no corpus and has only the parts "
                f"{' and '.join(own)} of the run: choose one of them, or name a file with --data"
            )

    def _remark(self, opened: OpenedAny, evaluated: Material, options: EvaluationOptions) -> None:
        """Say which of the evaluated data the model was trained on."""
        from clearformer.cli.train import places
        from clearformer.runs.contamination import lineage, remarks

        if options.own_part == 0:
            say("training part: the figures are of data that the run was trained on")
        known = lineage(opened.found, opened.config)
        held_back = options.own_part is not None
        for each in remarks(known, evaluated, places(self.data_dir), held_back=held_back):
            say(f"note: {each}")

    def _in_floats(self, opened: OpenedAny) -> Any:
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


def _weights(opened: OpenedAny) -> str:
    """Which weights are evaluated: of which checkpoint, and how they were made."""
    from clearformer.runs.load import has_int8

    found, train = opened.found, opened.config.train
    if "averaged" in found.manifest:
        steps = ", ".join(map(str, found.manifest["averaged"]))
        weights = f"the mean of the weights of the steps {steps}"
    elif has_int8(found):
        weights = "weights in int8"
    elif train.ema_decay is not None:
        weights = f"averaged weights (train.ema_decay {train.ema_decay:g})"
    else:
        weights = "weights as trained"
    return f"{found.folder}: {opened.config.model.name}, step {found.step}, {weights}"
