"""Figures of a plan: memory by part, and the work of a step, for reports and for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from clearformer.data import DataFolders
from clearformer.families.purposes import Wish
from clearformer.plan import planner, throughput
from clearformer.plan.data_sizes import epoch_steps
from clearformer.plan.planner import Plan
from clearformer.runs.start import preset_config
from clearformer.tasks.registry import task_of_run
from clearformer.training.memory import format_bytes

SHORT, USUAL = 64, 256  # tokens of a text that are assumed where there is no data
QUICK_SECONDS = 1.0  # of a measurement that is one of several


def memory_figures(plan: Plan) -> dict[str, int]:
    """Bytes by part; `scores` are all tables of attention, if they were kept (eq. 28)."""
    model, counted = plan.config.model, plan.counted
    return {
        "weights": counted.weights,
        "gradients": counted.gradients,
        "optimizer": counted.optimizer,
        "average": counted.average,
        "activations": counted.activations,
        "base": plan.base,
        "total": plan.total,
        "scores": 4 * score_table(plan) * model.layers,
    }


def score_table(plan: Plan) -> int:
    """Bytes of one layer's attention scores."""
    model = plan.config.model
    return 4 * plan.rows * model.heads * model.length * (model.length + (model.memory or 0))


@dataclass(frozen=True)
class Work:
    """The work of a run on this machine, by a short measurement.

    Attributes:
        step_operations, step_tokens, step_seconds: Of one step.
        operations_per_second (float): Measured speed.
        whole_model (bool): Whether the model itself was measured, and not a part of it.
        steps (int): Steps of the run's budget.
        seconds (float): Of these steps.
    """

    step_operations: int
    step_tokens: int
    step_seconds: float
    operations_per_second: float
    whole_model: bool
    steps: int
    seconds: float


def work(plan: Plan, places: DataFolders, seconds: float | None = None) -> Work:
    """Measure the speed of this machine for about `seconds`, 8 by default, and apply it to the
    budget."""
    config, counted = plan.config, plan.counted
    train, pair_lengths = config.train, plan.fixed.pair_lengths
    measured = throughput.measure(
        config, plan.rows, train.recompute, counted, pair_lengths, seconds=seconds
    )
    step = measured.seconds(counted, train.accumulation_steps)
    if train.minutes is not None:
        steps = int(60 * train.minutes / step)
    else:
        steps = train.steps or epoch_steps(config, places)
    return Work(
        counted.operations * train.accumulation_steps,
        planner.micro_tokens(config, pair_lengths) * train.accumulation_steps,
        step,
        measured.rate,
        measured.whole,
        steps,
        steps * step,
    )


@dataclass(frozen=True)
class Proposal:
    """A preset for a wish, with what it needs."""

    preset: str
    parameters: int
    memory: int  # bytes
    work: Work
    sequences: int  # of a step
    length: int  # tokens of a sequence that were assumed

    def lines(self) -> list[str]:
        work = self.work
        return [
            f"{self.parameters:,} parameters, about {format_bytes(self.memory)} of memory",
            f"about {work.steps:,} steps of {self.sequences} sequences of {self.length} tokens, "
            f"{work.step_seconds:.2g} s a step, measured here",
        ]

    def document(self) -> dict[str, object]:
        figures = {"sequences": self.sequences, "length": self.length, **asdict(self.work)}
        return {"parameters": self.parameters, "memory": self.memory, "work": figures}


def propose(name: str, wish: Wish) -> Proposal:
    """Plan a preset with its recipe for the time of a wish; ValueError if it does not fit."""
    config = preset_config(name)
    model, train = config.model, replace(config.train, steps=None, epochs=None)
    if task_of_run(config).padded:
        assumed = SHORT if wish.short else USUAL
        model = replace(model, length=min(model.length, assumed))
    config = replace(config, model=model, train=replace(train, minutes=wish.minutes))
    plan = planner.plan(config)
    measured = work(plan, DataFolders(), QUICK_SECONDS)
    rows = plan.rows * config.train.accumulation_steps
    return Proposal(name, plan.counted.parameters, plan.total, measured, rows, model.length)
