"""Inspecting a model: evaluation, traces, changes to what it computes, its training metrics."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, cast

from torch import Tensor

from clearformer.arguments import (
    BleuTokenize,
    Text,
    Weights,
    as_path,
    as_text,
    check_keywords,
    require_choice,
)
from clearformer.inference.weights import WEIGHTS
from clearformer.model.base import ModelBase
from clearformer.table_options import LabelledFormat

if TYPE_CHECKING:
    from clearformer.explore.attention_head import AttentionHead
    from clearformer.explore.trace import Trace
    from clearformer.interventions import Edit
    from clearformer.runs.evaluate_model import Evaluation, Evaluator
    from clearformer.runs.metrics import Metrics
    from clearformer.tasks.task import EvaluationOptions


class InspectingMixin(ModelBase):
    """Methods of `Model` that measure it and show what it computes."""

    @check_keywords
    def evaluate(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        part: str = "validation",
        context: int | None = None,
        stride: int | None = None,
        memory: int | None = None,
        max_bytes: int = 1_000_000,
        text: str | None = None,
        label: str | None = None,
        second: str | None = None,
        source_column: str | None = None,
        target_column: str | None = None,
        unknown_label: Literal["refuse", "skip"] = "refuse",
        precision: float | None = None,
        recall: float | None = None,
        weights: Weights = "float32",
        against: str | os.PathLike[str] | None = None,
        beam: int = 4,
        length_penalty: float = 1.0,
        bleu_tokenize: BleuTokenize = "13a",
        data_dir: str | os.PathLike[str] | None = None,
        table: LabelledFormat = LabelledFormat(),
    ) -> Evaluation:
        """Measure the model on data that it was not trained on.

        Args:
            data (path or str, optional): A file, or a corpus by name. Default: what the run held
                back.
            part (str): Which part of a corpus, such as ``"test"``; without `data`, ``"train"`` is
                what the run was trained on. Default: ``"validation"``.
            context (int, optional): Tokens that a prediction may use. Default: the model's length.
            stride (int, optional): Tokens between two windows; smaller is slower and better.
                Default: half the context.
            memory (int, optional): States that a Transformer-XL remembers. Default: as in
                training.
            max_bytes (int): Bytes of a text to score, or tokens for a masked model. Default:
                1,000,000.
            text, label, second (str, optional): Columns of a table; `second` has the second texts
                of sentence pairs. Default: as in training.
            source_column, target_column (str, optional): Columns of a table of pairs. Default: as
                in training.
            unknown_label (str): ``"skip"`` leaves out rows with labels that the training did not
                have. Default: ``"refuse"``.
            precision (float, optional): Of a classifier: also find the probability from which
                each class has this precision.
            recall (float, optional): Likewise for this recall.
            weights (str): ``"int8"`` or ``"int4"`` measures the model with such weights, beside
                float32. Default: ``"float32"``.
            against (path, optional): The run in float32 to measure beside one in int8. Default:
                the one that it was made from.
            beam (int): Hypotheses of a translator's beam search. Default: 4.
            length_penalty (float): Of that beam search. Default: 1.
            bleu_tokenize (str): How the BLEU of its translations splits texts into words, as in
                sacrebleu: ``"13a"``, ``"intl"``, ``"char"`` or ``"none"``. Default: ``"13a"``.
            data_dir (path, optional): Where corpora are. Default: ``CLEARFORMER_DATA``, then the
                cache, then a download.
            table (LabelledFormat): Encoding and delimiter of a table, and what happens to rows
                without a label or a text. Default: what the file says; such rows are skipped.

        Returns:
            Evaluation: ``metrics`` by name, ``notes``, and the whole report when printed.

        Example:
            >>> model.evaluate("more.txt").metrics["bits_per_byte"]  # doctest: +SKIP
        """
        from clearformer.tasks.task import EvaluationOptions

        given = dict(locals())
        options = {
            name: given[name] for name in EvaluationOptions.__dataclass_fields__ if name in given
        }
        options["data"] = None if data is None else str(as_path("data", data))
        require_choice("weights", weights, WEIGHTS)
        notes: list[str] = []
        evaluator = self.evaluator(EvaluationOptions(**options), data_dir)
        found = evaluator.measure(
            evaluator.prepare(notes.append),
            notes.append,
            weights=weights,
            against=None if against is None else as_path("against", against),
        )
        return type(found)(found.report, found.in_float32, notes=tuple(notes))

    def evaluator(
        self, options: EvaluationOptions, data_dir: str | os.PathLike[str] | None = None
    ) -> Evaluator:
        """The evaluation of this model in two steps: read the data, then measure."""
        from clearformer.data import DataFolders
        from clearformer.runs.evaluate_model import Evaluator

        return Evaluator(
            self.module,
            self.run_config,
            self._tokenizer(),
            options,
            DataFolders.from_environment(
                None if data_dir is None else as_path("data_dir", data_dir)
            ),
            self.name,
            self.checkpoint,
        )

    def trace(self, text: Text | Tensor | tuple[Text, Text], **options: object) -> Trace:
        """Run a text through the model and record every stage of the computation.

        Args:
            text (str, ids, or pair of these): One text; for a translator, source and target.
            **options: As in `clearformer.trace`.

        Returns:
            Trace: ``trace.weights(layer=2, head=1)`` are the attention weights of a head; in a
            notebook it shows itself.
        """
        from clearformer.explore.trace import trace

        pair = isinstance(text, tuple) and len(text) == 2 and "translate" in self.config.verbs
        given: Any = tuple(as_text(each) for each in text) if pair else as_text(text)
        return trace(self, given, **cast(Any, options))

    def edit(self, **changes: object) -> Edit:
        """Change what the model computes, inside a ``with`` statement.

        Args:
            **changes: As in `clearformer.interventions.edit`: ``zero``, ``scale``, ``replace``,
                ``mean``, ``steer``, ``freeze``, ``weights``, ``renormalize``. Points of the
                computation have the names that `trace` uses.

        Returns:
            Edit: A context manager; afterwards the model is as it was.

        Example:
            >>> from clearformer.interventions import head, residual
            >>> with model.edit(zero=head(2, 3)):  # doctest: +SKIP
            ...     model.generate("Once upon")
            >>> with model.edit(replace={residual(3).at(-1): other}):  # doctest: +SKIP
            ...     model.trace("The cat sat").logits
        """
        from clearformer.interventions import edit

        return edit(self, **cast(Any, changes))

    @check_keywords
    def attend(
        self,
        text: Text,
        *,
        layer: int = 0,
        head: int = 0,
        part: str | None = None,
        target: Text | None = None,
        mask: Literal["model", "none", "causal"] = "model",
    ) -> AttentionHead:
        """Show how one head of one layer attends to a text.

        Args:
            text (str or ids): What the model reads.
            layer (int): Which layer, from 0. Default: 0.
            head (int): Which head of the layer, from 0. Default: 0.
            part (str, optional): Of a translator ``"encoder"``, ``"decoder"`` or ``"cross"``.
                Default: the first part that the model has.
            target (str or ids, optional): What the decoder of a translator reads. Default: its
                own translation of the text.
            mask (str): ``"none"`` or ``"causal"`` replaces the model's attention pattern.
                Default: ``"model"``.

        Returns:
            AttentionHead: Its ``queries`` and ``keys`` are tokens, ``weights`` the attention
            weights, ``stages`` every step before them, and ``picture()`` a figure.

        Example:
            >>> model.attend("mary gave roses to susan", layer=2, head=1).weights  # doctest: +SKIP
        """
        from clearformer.explore.attention_head import attend

        return attend(
            cast(Any, self),
            as_text(text),
            layer=layer,
            head=head,
            part=part,
            target=target,
            mask=mask,
        )

    def metrics(self) -> Metrics:
        """The metrics of the run: one row for each step, evaluation and checkpoint.

        Returns:
            Metrics: A list of dicts; ``metrics().frame()`` is a pandas frame.
        """
        from clearformer.runs.metrics import Metrics, read

        folder = None if self.path is None or self.checkpoint is None else self.path
        file = None if folder is None else folder / "metrics.jsonl"
        if file is None or not file.exists():
            raise ValueError(f"{self.name} has no metrics.jsonl: load the folder of a trained run")
        return Metrics(read(file))
