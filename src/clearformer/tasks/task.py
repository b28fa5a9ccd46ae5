"""Base classes of the objectives: a task, and a task with its data loaded.

A `Task` belongs to a model config and needs no data: it names its metric and makes example
batches for planning. `Task.load` reads the data of a run and
returns a `LoadedTask`, which makes batches and evaluates a model in training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from clearformer import data, limits
from clearformer.arguments import BleuTokenize, require_choice, require_int, require_number
from clearformer.config import AnyModelConfig, RunConfig
from clearformer.table_options import LabelledFormat
from clearformer.tasks.measured import Measured
from clearformer.tasks.xl_memory import Memories
from clearformer.text import Tokenizer

Material = data.TextSource | tuple[str, ...]  # one text, or many
PairLengths = tuple[int, int]  # tokens of a source and of its target


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Data and settings of an evaluation; a task ignores those that do not apply to it."""

    data: str | None = None
    """A file or corpus; None: the data of the run."""
    part: str = "validation"
    """Which part of a corpus, or of the run's own data (validation or train)."""
    context: int | None = None
    """Tokens that a prediction may use; None: the model's length."""
    stride: int | None = None
    """Tokens between two windows; None: half the context."""
    memory: int | None = None
    """Memory length of a Transformer-XL; None: as in training."""
    max_bytes: int = 1_000_000
    """Bytes of a text to score; for a masked model, tokens."""
    text: str | None = None
    """Column of the texts in a table; None: as in training (so for the other columns)."""
    label: str | None = None
    second: str | None = None
    source_column: str | None = None
    target_column: str | None = None
    unknown_label: Literal["refuse", "skip"] = "refuse"
    """What to do with rows whose label the model does not have."""
    table: LabelledFormat = LabelledFormat()
    """How a table of `data` is read; the run's own data is read as in training."""
    precision: float | None = None
    """Of a classifier: also find the threshold of each class that gives this precision, or"""
    recall: float | None = None
    """this recall."""
    beam: int = 4
    """Hypotheses of a translator's beam search."""
    length_penalty: float = 1.0
    bleu_tokenize: BleuTokenize = "13a"
    """How the BLEU of its translations splits texts into words, as in sacrebleu."""

    def __post_init__(self) -> None:
        require_choice("unknown_label", self.unknown_label, ("refuse", "skip"))
        require_int("max_bytes", self.max_bytes, 1)
        require_choice("bleu_tokenize", self.bleu_tokenize, get_args(BleuTokenize))
        for name in ("precision", "recall"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), 0, 1)
        if self.precision is not None and self.recall is not None:
            raise ValueError("thresholds are for `precision` or for `recall`: give one of them")
        require_int("beam", self.beam, 1, limits.MAX_BEAM)
        require_number("length_penalty", self.length_penalty, -100, 100)

    @property
    def own_part(self) -> int | None:
        """Part of the run's own data: 0 training, 1 validation; None for other data."""
        return {"train": 0, "validation": 1}.get(self.part) if self.data is None else None

    def describe(self, name: str) -> str:
        """The name of the evaluated data, with its part if it is the run's own."""
        part = {0: "training part of ", 1: "held back by the run, of ", None: ""}[self.own_part]
        return f"{part}{name}"


@dataclass(frozen=True)
class EvaluationRequest:
    """A model's settings and the data to evaluate it on."""

    config: RunConfig
    tokenizer: Tokenizer
    options: EvaluationOptions
    folders: data.DataFolders
    identity: str | None = None  # hashes of the run's own data, to notice changed files


@dataclass(frozen=True)
class EvaluationData:
    """Data to evaluate on, prepared for a model's tokenizer."""

    request: EvaluationRequest
    name: str
    material: Material  # as text, to be compared with training data
    content: Any  # as the task's `measure` takes it
    notes: tuple[str, ...] = ()  # what the user should know about it


class Report:
    """Base class of evaluation results."""

    cut: int = 0  # texts that were truncated to the model's context
    total: int = 0  # texts

    @property
    def metrics(self) -> dict[str, float]:
        raise NotImplementedError

    def lines(self, in_float32: Any = None) -> list[str]:
        """The report as text, compared with that of the same model in float32 if given."""
        raise NotImplementedError

    def table_rows(
        self, *, probabilities: bool = False, worst_first: bool = False
    ) -> list[dict[str, object]]:
        """What the model says about each text, as rows of a table."""
        raise ValueError("a table of predictions is for classifiers: leave it out")

    def document(self) -> dict[str, object]:
        """The report as JSON."""
        protocol = getattr(self, "protocol", None)
        return {**self.metrics, **({} if protocol is None else {"protocol": str(protocol)})}


@dataclass(frozen=True)
class Task:
    """Base class of the objectives."""

    model: AnyModelConfig
    metric: ClassVar[str] = "loss"  # decides which checkpoint is best
    larger_is_better: ClassVar[bool] = False
    metrics: ClassVar[dict[str, bool]] = {}  # others that may decide; True: larger is better
    class_weights: ClassVar[bool] = False  # whether its loss can weight classes
    training_share: ClassVar[bool] = False  # whether it can learn from a share of its data
    counted: ClassVar[str] = "tokens"  # what a step learns to predict, in the plural
    padded: ClassVar[bool] = False  # batches are padded to their longest row, not filled
    evaluation_rows: ClassVar[int | None] = None  # None: an evaluation needs less than a step
    loaded: ClassVar[type[LoadedTask] | None] = None  # the task with its data
    target: ClassVar[Any] = None  # what is predicted of a whole text: a `Target`; None: nothing

    def load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None = None
    ) -> LoadedTask:
        """Load the data of a run; without a tokenizer, one is trained on the data."""
        if self.loaded is None:
            raise self._no_objective("is not trained here")
        return self.loaded(self, config, folders, tokenizer)

    def training_material(self, config: RunConfig, folders: data.DataFolders) -> Material:
        """The text that a run with these settings is trained on."""
        raise self._no_objective("is not trained here")

    def example(self, config: RunConfig, rows: int, pair_lengths: PairLengths) -> tuple[Any, Any]:
        """A batch of full length with zeros for tokens, and its caches."""
        raise self._no_objective("is not trained here")

    def rows(self, config: RunConfig, pair_lengths: PairLengths) -> int:
        """Sequences in a batch."""
        return config.train.batch_size

    def length(self, pair_lengths: PairLengths) -> int:
        """Tokens of the longest row of a batch."""
        return self.model.length

    def pair_lengths(
        self, config: RunConfig, folders: data.DataFolders
    ) -> tuple[PairLengths, PairLengths] | None:
        """Tokens of both sides in the largest and in the typical batch; None without pairs."""
        return None

    def typical_length(self, config: RunConfig, folders: data.DataFolders) -> int | None:
        """Mean length of padded rows; None if all rows have the same length."""
        return None

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        """Read and prepare the requested data."""
        raise self._no_objective("has nothing to evaluate here")

    def measure(self, model: Any, prepared: EvaluationData) -> Any:
        """Evaluate a model on prepared data: a `Report`."""
        raise self._no_objective("has nothing to evaluate here")

    def prepare_same(self, request: EvaluationRequest, prepared: EvaluationData) -> EvaluationData:
        """Prepare the texts that another model was evaluated on, to compare the two."""
        raise ValueError(
            f"a second run is for models that classify or predict, but {self.model.name} is "
            f"{self.model.noun}"
        )

    def _no_objective(self, limitation: str) -> ValueError:
        return ValueError(
            f"{self.model.name} is {self.model.noun}, which {limitation}: use clearformer embed, "
            f"or give it another head with clearformer train classify --from"
        )


class LoadedTask:
    """Base class of tasks with their data loaded, for training and evaluation."""

    task: Task
    config: RunConfig  # completed from the data: vocabulary, classes
    tokenizer: Tokenizer
    identity: str  # hashes of the data
    steps_per_epoch: int
    notes: tuple[str, ...]  # what the user should know about the data
    batches: Any  # `batches.sample_ids(step)` are the samples that a step learns from
    same_shape: ClassVar[bool] = False  # whether all batches have one shape: worth compiling

    def __init__(
        self,
        task: Any,
        config: RunConfig,
        folders: data.DataFolders,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.task = task
        chosen, known = config.train.best_metric, (task.metric, *task.metrics)
        if chosen is not None and chosen not in known:
            raise ValueError(
                f"train.best_metric is {chosen!r}, but {config.model.noun} has "
                f"{', '.join(dict.fromkeys(known))}"
            )
        if config.train.class_weights is not None and not task.class_weights:
            raise ValueError(
                f"train.class_weights is for classifiers, but this is {config.model.noun}: leave "
                f"it out"
            )
        if config.data.training_share < 1 and not task.training_share:
            raise ValueError(
                f"data.training_share is for generators and for models that classify or predict, "
                f"but this is {config.model.noun}: leave it out"
            )
        self._load(config, folders, tokenizer)

    def _load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        """Read the data and set the attributes above."""
        raise NotImplementedError

    @property
    def metric(self) -> str:
        return self.config.train.best_metric or self.task.metric

    @property
    def larger_is_better(self) -> bool:
        return self.task.metrics.get(self.metric, self.task.larger_is_better)

    @property
    def counted(self) -> str:
        return self.task.counted

    def prepare(self, model: Any) -> None:
        """Give a newly built model what its loss needs to know about the data."""

    def remarks(self) -> list[str]:
        """What a colleague would notice about the last evaluation."""
        return []

    def baseline(self) -> str | None:
        """The result of a simple method on the same split, as a sentence."""
        return None

    def batch(self, step: int) -> Any:
        raise NotImplementedError

    def evaluate(self, model: Any) -> Measured:
        """Metrics on some of the validation data."""
        raise NotImplementedError

    def chance(self) -> float:
        """The loss of a uniform prediction."""
        raise NotImplementedError

    def sample(self, model: Any) -> str | None:
        """Text from the model, for display; None if it generates none."""
        return None

    def memory(self, parts: int) -> Memories | None:
        """The memory of `parts` micro-batches across steps; None for models without one."""
        return None

    def fresh(self, step: int) -> bool:
        """Whether the rows of a step start anew instead of continuing those of the last step."""
        return False

    def text_identity(self) -> dict[str, Any] | None:
        """Size and hash of the training text; None if the data is a table."""
        return None


def rows_at_a_time(config: RunConfig, max_rows: int) -> int:
    """Rows of an evaluation batch: at most a micro-batch of training, which fits into memory."""
    return min(max_rows, config.train.batch_size // config.train.accumulation_steps)
