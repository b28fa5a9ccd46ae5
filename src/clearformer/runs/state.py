"""State of a run at a step boundary: saved and restored bit for bit.

Weights, optimizer states by parameter name, the EMA, the memory of earlier segments, random
generators and a few numbers. What follows from the config and the step (data order, learning rate)
is not saved but computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from clearformer import __version__
from clearformer.config import RunConfig, to_json
from clearformer.distributed import shards
from clearformer.distributed.parallel import NOT_PARALLEL, Parallelism
from clearformer.runs import checkpoint
from clearformer.runs.checkpoint import Checkpoint, Reached, no_fault
from clearformer.tasks.xl_memory import Memories
from clearformer.training import rng
from clearformer.training.ema import EMA
from clearformer.training.loss_scaling import Scaling


@dataclass(frozen=True)
class SavedWeights:
    """Which parameters of a model its checkpoints hold, and in which file."""

    file: str
    frozen: Collection[str] | None  # those that are saved though they do not learn; None: all

    def of(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Every parameter once, under its first name; `tied` lists the other names."""
        kept = self.frozen
        return {
            n: p
            for n, p in model.named_parameters()
            if kept is None or p.requires_grad or n in kept
        }

    def keeping(self, names: Collection[str]) -> SavedWeights:
        """The same, where these parameters are saved whether they learn or not."""
        return replace(self, frozen=frozenset(names))


WHOLE = SavedWeights("model.safetensors", frozen=None)
ADAPTER = SavedWeights("adapter.safetensors", frozen=())
COUNTERS = ("since_best", "evaluated", "empty", "targets")
NUMBERS = ("step", "seconds", "best", "last", *COUNTERS, "warmed")


@dataclass
class State:
    """Model, optimizers and progress of a run."""

    model: nn.Module
    optimizers: Sequence[Optimizer]
    ema: EMA | None
    memory: Memories | None = None  # of a Transformer-XL
    saved: SavedWeights = WHOLE
    scaling: Scaling = field(default_factory=Scaling)  # of the loss, in float16
    step: int = 0
    seconds: float = 0.0  # spent training, over all starts
    best: dict[str, Any] | None = None  # {"step", "value"} of the best evaluation
    scores: Tensor | None = None  # of the texts in that evaluation
    last: dict[str, Any] | None = None  # the last evaluation, and how it compares with the best
    since_best: int = 0  # evaluations without improvement
    evaluated: int = 0  # evaluations so far
    empty: int = 0  # steps without a target, which changed nothing
    targets: int = 0  # so far
    warmed: dict[str, Any] | None = None  # {"step", "seconds"} at the end of the warm-up

    def numbers(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in NUMBERS}

    def bytes(self) -> int:
        """Approximate size of a checkpoint: weights, two optimizer states for each, and the EMA."""
        saved = sum(p.numel() * p.element_size() for p in self.saved.of(self.model).values())
        return saved * (3 if self.ema is None else 4)


def save(
    folder: Path,
    state: State,
    config: RunConfig,
    tokenizer: Mapping[str, Any],
    facts: Mapping[str, Any],
    reached: Reached = no_fault,
    parallel: Parallelism = NOT_PARALLEL,
) -> Checkpoint:
    """Write a checkpoint of `state` into the folder of checkpoints, by the main process."""
    parts, slots = parallel.split_sharded(_slots(state.optimizers))
    tensors = {
        state.saved.file: parallel.full_tensors(weights(state.model, state.saved)),
        "optimizer.safetensors": slots,
        "state.safetensors": _others(state, parallel),
    }
    documents = {
        "state.json": {**state.numbers(), "scaling": state.scaling.numbers()},
        "config.json": to_json(config),
        "tokenizer.json": tokenizer,
    }
    manifest = {
        "clearformer": __version__,
        "torch": torch.__version__,
        "tied": tied(state.model),
        **facts,
    }
    shard_folder = folder / f".tmp-shards-{state.step}" if parts else None
    if shard_folder is not None:
        shards.write(shard_folder, parts)

    def write() -> Any:
        return dict(
            checkpoint.write(
                folder, state.step, tensors, documents, manifest, reached, shard_folder
            ).manifest
        )

    return Checkpoint(folder / f"step-{state.step}", state.step, parallel.group.on_main(write))


def restore(
    saved: Checkpoint, state: State, seed: int = 0, parallel: Parallelism = NOT_PARALLEL
) -> None:
    """Load a checkpoint into a new state; `seed` is for ranks without saved generators."""
    try:
        _restore(saved, state, seed, parallel)
    except torch.OutOfMemoryError:
        raise
    except (LookupError, TypeError, AttributeError, RuntimeError, OverflowError) as problem:
        # Valid hashes do not make a file trustworthy.
        raise ValueError(
            f"{saved.folder} is not a valid checkpoint ({type(problem).__name__}: "
            f"{str(problem).splitlines()[0] if str(problem) else '':.80}): use an older one, or "
            f"start a new run in another folder"
        ) from None


def _restore(saved: Checkpoint, state: State, seed: int, parallel: Parallelism) -> None:
    group, device = parallel.group, next(state.model.parameters()).device
    load_weights(
        state.saved.of(state.model),
        saved.tensors(state.saved.file),
        str(saved.folder),
        parallel.shard,
    )
    numbers = saved.json("state.json")
    _require_numbers(numbers, saved)
    scaling = numbers.get("scaling")
    left_out = numbers.get("empty", 0) + (scaling["skipped"] if scaling else 0)
    _restore_slots(saved, state.optimizers, parallel, moved=saved.step > left_out)
    others = saved.tensors("state.safetensors")
    if state.ema is not None:
        state.ema.load(_unprefixed("average.", others), parallel.shard)
    if state.memory is not None:
        state.memory.load(_unprefixed("memory.", others), device, group)
    load_buffers(state.model, others, str(saved.folder))
    state.scaling.load(scaling)
    state.scores = others.get("scores")
    for name, value in numbers.items():
        if name in NUMBERS:
            setattr(state, name, value)
    if saved.manifest.get("world", 1) == group.world_size:
        rng.restore(_unprefixed("generator.", others), device, group.rank)
    else:
        rng.seed_rank(seed, state.step, group.rank)


def _require_numbers(numbers: Mapping[str, Any], saved: Checkpoint) -> None:
    """ValueError for a state with impossible numbers."""

    def is_count(value: Any) -> bool:
        return type(value) is int and 0 <= value < 2**53

    def is_number(value: Any) -> bool:
        return type(value) in (int, float) and math.isfinite(value)

    best, last, warmed = (numbers.get(name) for name in ("best", "last", "warmed"))
    checks = {
        "step": numbers["step"] == saved.step and is_count(numbers["step"]),
        "seconds": is_number(numbers["seconds"]) and numbers["seconds"] >= 0,
        "best": best is None or (is_count(best["step"]) and is_number(best["value"])),
        "last": last is None or (isinstance(last, dict) and is_count(last["step"])),
        "warmed": warmed is None
        or (is_count(warmed["step"]) and is_number(warmed["seconds"]) and warmed["seconds"] >= 0),
        **{name: is_count(numbers.get(name, 0)) for name in COUNTERS},
    }
    for name, valid in checks.items():
        if not valid:
            raise ValueError(
                f"{saved.folder / 'state.json'}: {name} is {numbers[name]!r:.60}, which is not "
                f"possible: use an older checkpoint, or start a new run in another folder"
            )


def _restore_slots(
    saved: Checkpoint, optimizers: Sequence[Optimizer], parallel: Parallelism, moved: bool
) -> None:
    named = {name: parameter for _, name, parameter in _named(optimizers)}

    def like(slot: str, shape: torch.Size) -> Tensor:
        owner = named.get(slot.rpartition(".")[0])
        return torch.empty(shape) if owner is None or owner.shape != shape else owner.detach()

    slots = saved.tensors("optimizer.safetensors")
    if any(name.startswith(f"{checkpoint.SHARDS}/") for name in saved.manifest["files"]):
        slots |= shards.read(saved.folder / checkpoint.SHARDS, like)
    _require_slots(slots, named, saved.folder, moved)
    for optimizer, name, parameter in _named(optimizers):
        optimizer.state[parameter] = {
            key.removeprefix(f"{name}."): parallel.shard(value, parameter)
            for key, value in slots.items()
            if key.rpartition(".")[0] == name
        }


def _require_slots(
    slots: Mapping[str, Tensor], named: Mapping[str, Tensor], where: Path, moved: bool
) -> None:
    """ValueError for optimizer states that fit no parameter; optimizers do not check them."""
    for key, value in slots.items():
        owner = named.get(key.rpartition(".")[0])
        shapes = () if owner is None else (owner.shape, torch.Size())
        if value.shape not in shapes or not value.is_floating_point():
            raise ValueError(
                f"{where}: the optimizer's {key:.100} has shape {tuple(value.shape)} and type "
                f"{value.dtype}, and fits no parameter: use an older checkpoint"
            )
    if moved and not slots:
        raise ValueError(f"{where} has no optimizer state: use an older checkpoint")


def weights(model: nn.Module, saved: SavedWeights = WHOLE) -> dict[str, Tensor]:
    """The parameters that a checkpoint holds, by name."""
    return {name: parameter.detach() for name, parameter in saved.of(model).items()}


def tied(model: nn.Module) -> dict[str, str]:
    """Other names of shared parameters, each with the first name."""
    first: dict[int, str] = {}
    aliases = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owner = first.setdefault(id(parameter), name)
        if owner != name:
            aliases[name] = owner
    return aliases


def buffers(model: nn.Module) -> dict[str, Tensor]:
    """Buffers of a model, such as running statistics; clearformer's own models have none."""
    learned = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {name: value for name, value in model.state_dict().items() if name not in learned}


@torch.no_grad()
def load_buffers(model: nn.Module, others: Mapping[str, Tensor], where: str) -> None:
    """Load what `buffers` returned; older checkpoints have none."""
    saved = _unprefixed("buffers.", others)
    for name, value in buffers(model).items() if saved else ():
        if name not in saved or saved[name].shape != value.shape:
            raise ValueError(f"{where} does not fit the model: buffer {name} is missing or differs")
        value.copy_(saved[name])


@torch.no_grad()
def load_weights(
    parameters: Mapping[str, nn.Parameter],
    tensors: Mapping[str, Tensor],
    where: str,
    shard: Callable[[Tensor, Tensor], Tensor] = lambda full, like: full,
) -> None:
    """Load weights by name, or this rank's shard of them.

    ValueError for a missing or additional weight, or one of another shape.
    """
    _require_fit(parameters, tensors, where)
    for name, parameter in parameters.items():
        parameter.copy_(shard(tensors[name], parameter))


def adopt_weights(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Use these tensors as the parameters of a model without memory (`build.outline`).

    Nothing is initialized or copied, tied parameters stay tied, and frozen ones frozen.
    """
    _require_fit(dict(model.named_parameters()), tensors, where)
    parameters = {
        id(p): nn.Parameter(tensors[name], p.requires_grad) for name, p in model.named_parameters()
    }
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            setattr(module, name, parameters[id(parameter)])


def _require_fit(
    parameters: Mapping[str, nn.Parameter], tensors: Mapping[str, Tensor], where: str
) -> None:
    missing, extra = (
        sorted(parameters.keys() - tensors.keys()),
        sorted(tensors.keys() - parameters.keys()),
    )
    if missing or extra:
        raise ValueError(
            f"{where} does not fit the model: missing {_list(missing)}; not in the model: "
            f"{_list(extra)}"
        )
    for name, parameter in parameters.items():
        if parameter.shape != tensors[name].shape:
            raise ValueError(
                f"{where}: {name} has shape {tuple(tensors[name].shape)}, "
                f"but the model has {tuple(parameter.shape)}"
            )
        if not tensors[name].is_floating_point():
            raise ValueError(
                f"{where}: {name} has the type {tensors[name].dtype}, but weights are floats"
            )


def _slots(optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    return {
        f"{name}.{slot}": value
        for optimizer, name, parameter in _named(optimizers)
        for slot, value in optimizer.state.get(parameter, {}).items()
    }


def _named(optimizers: Sequence[Optimizer]) -> Iterator[tuple[Optimizer, str, Tensor]]:
    """Every parameter of the optimizers with its name."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for name, parameter in zip(group["names"], group["params"], strict=True):
                yield optimizer, name, parameter


def _others(state: State, parallel: Parallelism) -> dict[str, Tensor]:
    device = next(state.model.parameters()).device
    tensors = _prefixed("generator.", rng.states(device, parallel.group))
    if state.ema is not None:
        tensors |= _prefixed("average.", parallel.full_tensors(state.ema.weights))
    tensors |= _prefixed("buffers.", buffers(state.model))
    if state.scores is not None:
        tensors["scores"] = state.scores
    if state.memory is not None:
        tensors |= _prefixed("memory.", state.memory.tensors(parallel.group))
    return tensors


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": value for name, value in tensors.items()}


def _unprefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown or "nothing"
