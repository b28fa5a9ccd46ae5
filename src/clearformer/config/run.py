"""RunConfig: a model, its training data, and the training settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from clearformer import limits
from clearformer.config.adapters import Adapter
from clearformer.config.codec import from_json, to_json
from clearformer.config.generation import GenerationDefaults, without_generation
from clearformer.config.model import AnyModelConfig, with_family
from clearformer.core.patterns import require
from clearformer.table_options import EARLIER, TableOptions

# --- learning rate schedules ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Constant after the warm-up."""

    warmup: int = 0

    def __post_init__(self) -> None:
        _require_schedule(self)


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Linear decay to `final` times the learning rate."""

    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        _require_schedule(self)


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Cosine decay to `final` times the learning rate."""

    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        _require_schedule(self)


@dataclass(frozen=True, kw_only=True)
class StableThenDecay:
    """Constant, then linear decay over the last `decay` of the run."""

    warmup: int = 0
    decay: float = 0.4
    final: float = 0.0

    def __post_init__(self) -> None:
        require(self, "decay", 0 < self.decay <= 1, "above 0 and at most 1")
        _require_schedule(self)


@dataclass(frozen=True, kw_only=True)
class InverseSqrt:
    """Linear warm-up, then decay with the inverse square root of the step (Vaswani et al. 2017)."""

    warmup: int = 4000

    def __post_init__(self) -> None:
        _require_schedule(self)


def _require_schedule(schedule: Any) -> None:
    require(schedule, "warmup", schedule.warmup >= 0, "at least 0")
    most = limits.MAX_STEPS
    require(schedule, "warmup", schedule.warmup <= most, f"at most {most:,}")
    if hasattr(schedule, "final"):
        require(schedule, "final", 0 <= schedule.final <= 1, "from 0 to 1")


Schedule = Constant | Linear | Cosine | StableThenDecay | InverseSqrt

# --- optimizers ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """AdamW for every parameter."""

    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            require(self, name, 0 <= getattr(self, name) < 1, "at least 0 and below 1")
        require(self, "epsilon", 0 < self.epsilon < math.inf, "above 0")
        require(self, "weight_decay", 0 <= self.weight_decay < math.inf, "at least 0")


@dataclass(frozen=True, kw_only=True)
class Muon:
    """Muon for the matrices of the blocks; AdamW for everything else."""

    momentum: float = 0.95
    iterations: int = 5
    """Iterations that orthogonalize an update; about a quarter of the time of a small batch."""
    weight_decay: float = 0.0
    adam_learning_rate: float = 3e-3
    """Base learning rate of everything that AdamW updates."""
    adam: AdamW = field(default_factory=AdamW)

    def __post_init__(self) -> None:
        require(self, "momentum", 0 <= self.momentum < 1, "at least 0 and below 1")
        require(self, "iterations", 1 <= self.iterations < 100, "from 1 to 99")
        require(self, "weight_decay", 0 <= self.weight_decay < math.inf, "at least 0")
        require(
            self,
            "adam_learning_rate",
            0 < self.adam_learning_rate <= 1000,
            "above 0 and at most 1000",
        )


Optimizer = AdamW | Muon


# Larger values cannot be run, and would overflow the arithmetic.
MOST = {
    "batch_size": limits.MAX_BATCH,
    "threads": limits.MAX_THREADS,
    "epochs": limits.MAX_EPOCHS,
    "minutes": limits.MAX_MINUTES,
    "timeout_seconds": limits.MAX_SECONDS,
    "recompute": limits.MAX_LAYERS,
    **dict.fromkeys(
        ("steps", "batch_tokens", "evaluations", "patience", "keep_checkpoints"), limits.MAX_STEPS
    ),
}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One budget (steps, epochs or minutes), and the training settings."""

    learning_rate: float
    """Base learning rate."""
    batch_size: int
    """Sequences in a step, over all micro-batches; for pairs, the maximum."""
    batch_tokens: int | None = None
    """Pairs: maximum number of tokens of a side in a step, with padding; none: no limit."""
    steps: int | None = None
    """Budget in steps."""
    epochs: float | None = None
    """Budget in passes over the training data."""
    minutes: float | None = None
    """Budget in minutes; the schedule follows the clock."""
    accumulation_steps: int = 1
    """Micro-batches in a step: less memory, the same gradient."""
    optimizer: Optimizer = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=Linear)
    decay_start: Literal["after_warmup", "from_start"] = "after_warmup"
    """Where the schedule's decay begins: after the warm-up, which then takes at most a tenth of the
    run, so that the base rate is reached; or at the first step, as in runs of earlier versions."""
    gradient_clip: float | None = 1.0
    """Maximum norm of the gradient."""
    label_smoothing: float = 0.0
    """Share of a target's probability spread over all classes."""
    class_weights: Literal["balanced"] | None = None
    """A classifier: balanced gives every class the same weight in the loss, however rare; none:
    every text."""
    ema_decay: float | None = None
    """Decay of a running average of the weights, used for evaluation."""
    seed: int = 0
    evaluations: int = 10
    """Number of evaluations, spread over the run; the last is at its end."""
    best_metric: str | None = None
    """Which validation metric decides the best checkpoint; a classifier has accuracy, macro_f1 and
    loss; none: the usual one."""
    patience: int | None = None
    """Stop after this many evaluations without improvement."""
    save_seconds: float = 120.0
    """Longest time between two checkpoints."""
    keep_checkpoints: int = 2
    """Checkpoints to keep, besides the best."""
    log_checkpoints: bool = False
    """Also keep checkpoints of step 0 and of steps 4, 16, 64, 256 ..., to look at how a model
    learned."""
    compile: Literal["auto", "on", "off"] = "auto"
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of the matrix products; weights and loss stay in float32."""
    recompute: int | Literal["attention"] | None = None
    """What the backward pass recomputes instead of storing: every n-th block (1: all
    of them), or attention alone; none: nothing. Less memory, more time, the same gradient."""
    device: str = "auto"
    threads: int | None = None
    """CPU threads; none: all of them."""
    parallel: Literal["ddp", "fsdp2"] = "ddp"
    """With several processes: replicas of the model (ddp), or shards of each block (fsdp2)."""
    timeout_seconds: float = 300.0
    """With several processes: seconds that ranks wait for each other before the job ends."""
    freeze: Literal["body"] | None = None
    """Frozen weights: the body is all but the head; none: nothing is frozen."""
    adapter: Adapter | None = None
    """With --from: train low-rank updates of the matrices, LoRA or DoRA, and leave the model as it
    is; none: train the model."""
    embedding_std: float | None = None
    """With --from: rescale the embedding tables to this standard deviation, such as 0.02. A norm
    follows them, so this affects only how fast they learn; none: they are not rescaled."""

    def __post_init__(self) -> None:
        require(self, "learning_rate", 0 < self.learning_rate <= 1000, "above 0 and at most 1000")
        require(self, "save_seconds", self.save_seconds >= 0, "at least 0")
        within = self.embedding_std is None or 0 < self.embedding_std <= 100
        require(self, "embedding_std", within, "above 0 and at most 100")
        require(self, "batch_size", self.batch_size >= 1, "at least 1")
        require(self, "accumulation_steps", self.accumulation_steps >= 1, "at least 1")
        require(
            self,
            "keep_checkpoints",
            self.keep_checkpoints >= 2,
            "at least 2, so that one always survives",
        )
        require(self, "evaluations", self.evaluations >= 1, "at least 1")
        require(self, "timeout_seconds", self.timeout_seconds > 0, "above 0")
        require(self, "label_smoothing", 0 <= self.label_smoothing < 1, "at least 0 and below 1")
        for name in (
            "steps",
            "epochs",
            "minutes",
            "gradient_clip",
            "patience",
            "threads",
            "batch_tokens",
        ):
            value = getattr(self, name)
            fits = value is None or 0 < value < math.inf
            require(self, name, fits, "above 0, or absent")
        for name, most in MOST.items():
            value = getattr(self, name)
            fits = value is None or isinstance(value, str) or value <= most
            require(self, name, fits, f"at most {most:,}")
        if isinstance(self.recompute, int):
            require(self, "recompute", self.recompute >= 1, "at least 1, attention, or absent")
        if self.ema_decay is not None:
            require(self, "ema_decay", 0 < self.ema_decay < 1, "between 0 and 1, or absent")
        if self.batch_size % self.accumulation_steps:
            fits = [n for n in range(1, self.batch_size + 1) if self.batch_size % n == 0]
            raise ValueError(
                f"TrainConfig: accumulation_steps is {self.accumulation_steps}, but it must "
                f"divide the batch of {self.batch_size}: one of {', '.join(map(str, fits))}"
            )
        for name in ("freeze", "embedding_std"):
            if self.adapter is not None and getattr(self, name) is not None:
                raise ValueError(
                    f"TrainConfig: {name} is {getattr(self, name)!r}, but with an adapter the "
                    f"model stays as it is: leave one of them out"
                )
        budgets = [name for name in ("steps", "epochs", "minutes") if getattr(self, name)]
        if len(budgets) != 1:
            raise ValueError(
                f"TrainConfig: the budget is given in {' and '.join(budgets) or 'nothing'}, "
                f"but it must be in one of steps, epochs and minutes"
            )


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Which tokens are masked for a masked language model, and how they are replaced."""

    rate: float = 0.15
    """Share of the tokens that are masked."""
    mask_replace: float = 0.8
    """Share of the masked ones that are replaced by [MASK]."""
    random_replace: float = 0.1
    """Share of the masked ones that are replaced by a random token; the rest is unchanged."""
    unit: Literal["tokens", "words"] = "tokens"
    """Whether the pieces of a word are masked one by one or together."""

    def __post_init__(self) -> None:
        require(self, "rate", 0 < self.rate < 1, "between 0 and 1")
        for name in ("mask_replace", "random_replace"):
            require(self, name, 0 <= getattr(self, name) <= 1, "from 0 to 1")
        rest = f"at most what mask_replace leaves, {1 - self.mask_replace:g}"
        require(self, "random_replace", self.mask_replace + self.random_replace <= 1 + 1e-9, rest)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Training data: a corpus by name or the user's files, and the tokenizer."""

    source: str
    """A corpus by name, a file, a folder, a glob, or - for standard input; of pairs also two
    files with a comma between them."""
    include: str | None = None
    """Which files of a folder to read, such as *.py or "*.py,*.md"; none: .txt and .md."""
    validation: str | None = None
    """A file to evaluate on; none: a part of the source."""
    validation_fraction: float = 0.1
    """The size of that part."""
    training_share: float = 1.0
    """How much of the rest is learned from, for a learning curve; what is held back stays."""
    tokenizer: Literal[
        "bytes", "characters", "words", "bpe", "wordpiece", "sentencepiece", "fallback-bpe"
    ] = "bytes"
    vocabulary: int | None = None
    """Size of a trained tokenizer; none: by the size of the text."""
    text_column: str = "text"
    """Column of the texts, in a table."""
    label_column: str = "label"
    """Column of the labels, in a table."""
    second_column: str = "second"
    """Column of the second texts, in a table of sentence pairs."""
    source_column: str = "source"
    """Column of the sources, in a table of pairs."""
    target_column: str = "target"
    """Column of the targets."""
    truncate_to: Literal["head", "tail", "ends"] = "head"
    """Which part of a text longer than the context is used."""
    masking: Masking | None = None
    """Masking settings; none: no masking."""
    form: Literal["text", "conversations"] = "text"
    """What the source of a generator holds: running text, or conversations (train chat)."""
    template: str | None = None
    """File with a Jinja chat template for conversations; none: the model's own, or a plain one."""
    table: TableOptions = field(default_factory=TableOptions)

    def __post_init__(self) -> None:
        require(self, "validation_fraction", 0 < self.validation_fraction < 1, "between 0 and 1")
        share = self.training_share
        require(self, "training_share", 0 < share <= 1, "above 0 and at most 1")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The checkpoint whose weights and tokenizer a run was fine-tuned from."""

    folder: str
    """Its folder; not needed once the run has its own checkpoint."""
    sha256: str
    """Of its manifest, which holds the hashes of all its files."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All settings of a run; its JSON is enough to rebuild the run."""

    model: AnyModelConfig
    data: DataConfig
    train: TrainConfig
    origin: Origin | None = None
    generation: GenerationDefaults = field(default_factory=GenerationDefaults)

    def __post_init__(self) -> None:
        self.generation.require_fits("translate" in self.model.verbs, self.model.noun)


def run_from_json(data: Any) -> RunConfig:
    """Read what `to_json` wrote; anything unknown, missing or of the wrong type is refused."""
    config: RunConfig = from_json(RunConfig, _with_old_meaning(data), "run")
    return config


def _with_old_meaning(data: Any) -> Any:
    """Add settings that older configs lack, with the values of that time: changed defaults must not
    affect a resumed run."""
    if not isinstance(data, dict):
        return data
    if "model" in data:
        data = {**data, "model": with_family(data["model"])}
        if "generation" not in data:  # earlier versions kept it in the model
            model, generation = without_generation(data["model"])
            data = {**data, "model": model, "generation": generation}
    source = data.get("data")
    if isinstance(source, dict) and "table" not in source:
        data = {**data, "data": {**source, "table": to_json(EARLIER)}}
    train = data.get("train")
    if not isinstance(train, dict) or "anneal" in train or "decay_start" in train:
        return data
    return {**data, "train": {**train, "decay_start": "from_start"}}
