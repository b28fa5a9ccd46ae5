"""State of a run at a step boundary: saved and restored bit for bit.

Weights, optimizer states by parameter name, the EMA, the memory of earlier segments, random
generators and a few numbers. What follows from the config and the step (data order, learning rate)
is not saved but computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from clearformer.runs.checkpoint import Checkpoint, Reached, nothing_happens
from clearformer.tasks.xl_memory import Memories
from clearformer.training import rng
from clearformer.training.ema import EMA
from clearformer.training.loss_scaling import Scaling

COUNTS = ("since_best", "evaluated", "empty", "targets")
NUMBERS = ("step", "seconds", "best", "last", *COUNTS, "warmed")


@dataclass
class State:
    """Model, optimizers and progress of a run."""

    model: nn.Module
    optimizers: Sequence[Optimizer]
    ema: EMA | None
    memory: Memories | None = None  # of a model that goes on from step to step
    scaling: Scaling = field(default_factory=Scaling)  # of the loss, in float16
    step: int = 0
    seconds: float = 0.0  # spent training, over all starts
    best: dict[str, Any] | None = None  # {"step", "value"} of the best evaluation
    scores: Tensor | None = None  # of the texts in that evaluation
    last: dict[str, Any] | None = None  # the last evaluation, and how it compares with the best
    since_best: int = 0  # evaluations without improvement
    evaluated: int = 0  # evaluations so far
    empty: int = 0  # steps without a single target, which changed nothing
    targets: int = 0  # learned from so far
    warmed: dict[str, Any] | None = None  # {"step", "seconds"} at which the warm-up was over

    def numbers(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in NUMBERS}

    def bytes(self) -> int:
        """Approximate size of a checkpoint: weights, two optimizer states for each, and the EMA."""
        weights = sum(p.numel() * p.element_size() for p in self.model.parameters())
        return weights * (3 if self.ema is None else 4)


def save(
    folder: Path,
    state: State,
    config: RunConfig,
    tokenizer: Mapping[str, Any],
    facts: Mapping[str, Any],
    reached: Reached = nothing_happens,
    parallel: Parallelism = NOT_PARALLEL,
) -> Checkpoint:
    """Write a checkpoint of `state` into the folder of checkpoints, by the main process."""
    parts, slots = parallel.split_sharded(_slots(state.optimizers))
    tensors = {
        "model.safetensors": parallel.full_tensors(weights(state.model)),
        "optimizer.safetensors": slots,
        "state.safetensors": _others(state, parallel),
    }
    documents = {
        "state.json": {**state.numbers(), "scaling": state.scaling.numbers()},
        "config.json": to_json(config),
        "tokenizer.json": tokenizer,
    }
    about = {
        "clearformer": __version__,
        "torch": torch.__version__,
        "tied": tied(state.model),
        **facts,
    }
    written = folder / f".tmp-shards-{state.step}" if parts else None
    if written is not None:
        shards.write(written, parts)

    def write() -> Any:
        return dict(
            checkpoint.write(
                folder, state.step, tensors, documents, about, reached, written
            ).manifest
        )

    return Checkpoint(folder / f"step-{state.step}", state.step, parallel.group.on_main(write))


def restore(
    found: Checkpoint, state: State, seed: int = 0, parallel: Parallelism = NOT_PARALLEL
) -> None:
    """Load a checkpoint into a new state; `seed` is for ranks whose generators were not saved."""
    try:
        _restore(found, state, seed, parallel)
    except torch.OutOfMemoryError:
        raise
    except (LookupError, TypeError, AttributeError, RuntimeError, OverflowError) as problem:
        # Hashes do not make a file trustworthy: what does not fit is refused.
        raise ValueError(
            f"{found.folder} is not what clearformer writes ({type(problem).__name__}: "
            f"{str(problem).splitlines()[0] if str(problem) else '':.80}): take an older one, or "
            f"start anew in another folder"
        ) from None


def _restore(found: Checkpoint, state: State, seed: int, parallel: Parallelism) -> None:
    group, device = parallel.group, next(state.model.parameters()).device
    load_weights(state.model, found.tensors("model.safetensors"), str(found.folder), parallel.shard)
    numbers = found.json("state.json")
    _require_numbers(numbers, found)
    scaling = numbers.get("scaling")
    left_out = numbers.get("empty", 0) + (scaling["skipped"] if scaling else 0)
    _restore_slots(found, state.optimizers, parallel, moved=found.step > left_out)
    others = found.tensors("state.safetensors")
    if state.ema is not None:
        state.ema.load(_unprefixed("average.", others), parallel.shard)
    if state.memory is not None:
        state.memory.load(_unprefixed("memory.", others), device, group)
    load_buffers(state.model, others, str(found.folder))
    state.scaling.load(scaling)
    state.scores = others.get("scores")
    for name, value in numbers.items():
        if name in NUMBERS:
            setattr(state, name, value)
    if found.manifest.get("world", 1) == group.world_size:
        rng.restore(_unprefixed("generator.", others), device, group.rank)
    else:
        rng.seed_rank(seed, state.step, group.rank)


def _require_numbers(numbers: Mapping[str, Any], found: Checkpoint) -> None:
    """Refuse a state whose numbers no run can have."""

    def is_count(value: Any) -> bool:
        return type(value) is int and 0 <= value < 2**53

    def is_number(value: Any) -> bool:
        return type(value) in (int, float) and math.isfinite(value)

    best, last, warmed = (numbers.get(name) for name in ("best", "last", "warmed"))
    sound = {
        "step": numbers["step"] == found.step and is_count(numbers["step"]),
        "seconds": is_number(numbers["seconds"]) and numbers["seconds"] >= 0,
        "best": best is None or (is_count(best["step"]) and is_number(best["value"])),
        "last": last is None or (isinstance(last, dict) and is_count(last["step"])),
        "warmed": warmed is None
        or (is_count(warmed["step"]) and is_number(warmed["seconds"]) and warmed["seconds"] >= 0),
        **{name: is_count(numbers.get(name, 0)) for name in COUNTS},
    }
    for name, right in sound.items():
        if not right:
            raise ValueError(
                f"{found.folder / 'state.json'}: {name} is {numbers[name]!r:.60}, which no run "
                f"counts: take an older checkpoint, or start anew in another folder"
            )


def _restore_slots(
    found: Checkpoint, optimizers: Sequence[Optimizer], parallel: Parallelism, moved: bool
) -> None:
    named = {name: parameter for _, name, parameter in _named(optimizers)}

    def like(slot: str, shape: torch.Size) -> Tensor:
        owner = named.get(slot.rpartition(".")[0])
        return torch.empty(shape) if owner is None or owner.shape != shape else owner.detach()

    slots = found.tensors("optimizer.safetensors")
    if any(name.startswith(f"{checkpoint.SHARDS}/") for name in found.manifest["files"]):
        slots |= shards.read(found.folder / checkpoint.SHARDS, like)
    _require_slots(slots, named, found.folder, moved)
    for optimizer, name, parameter in _named(optimizers):
        optimizer.state[parameter] = {
            key.removeprefix(f"{name}."): parallel.shard(value, parameter)
            for key, value in slots.items()
            if key.rpartition(".")[0] == name
        }


def _require_slots(
    slots: Mapping[str, Tensor], named: Mapping[str, Tensor], where: Path, moved: bool
) -> None:
    """Refuse optimizer states that fit no parameter; optimizers do not check them."""
    for key, value in slots.items():
        owner = named.get(key.rpartition(".")[0])
        shapes = () if owner is None else (owner.shape, torch.Size())
        if value.shape not in shapes or not value.is_floating_point():
            raise ValueError(
                f"{where}: the optimizer's {key:.100} has shape {tuple(value.shape)} and type "
                f"{value.dtype}, and fits no parameter: take an older checkpoint"
            )
    if moved and not slots:
        raise ValueError(f"{where} has lost what its optimizer had gathered: take an older one")


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, under its first name; whoever shares it is listed by `tied`."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def tied(model: nn.Module) -> dict[str, str]:
    """Second names of shared parameters, each with the first."""
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
    found = _unprefixed("buffers.", others)
    for name, value in buffers(model).items() if found else ():
        if name not in found or found[name].shape != value.shape:
            raise ValueError(f"{where} does not fit the model: its buffer {name} is another")
        value.copy_(found[name])


@torch.no_grad()
def load_weights(
    model: nn.Module,
    found: Mapping[str, Tensor],
    where: str,
    shard: Callable[[Tensor, Tensor], Tensor] = lambda full, like: full,
) -> None:
    """Load weights by name, or this rank's shard of them; a missing, extra or misshapen one is
    refused."""
    _require_fit(model, found, where)
    for name, parameter in model.named_parameters():
        parameter.copy_(shard(found[name], parameter))


def adopt_weights(model: nn.Module, found: Mapping[str, Tensor], where: str) -> None:
    """Use these tensors as the parameters of a model without memory (`build.outline`).

    Nothing is initialized or copied, and tied parameters stay tied.
    """
    _require_fit(model, found, where)
    own = {id(p): nn.Parameter(found[name]) for name, p in model.named_parameters()}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            setattr(module, name, own[id(parameter)])


def _require_fit(model: nn.Module, found: Mapping[str, Tensor], where: str) -> None:
    own = dict(model.named_parameters())
    missing, extra = sorted(own.keys() - found.keys()), sorted(found.keys() - own.keys())
    if missing or extra:
        raise ValueError(
            f"{where} does not fit the model: it lacks {_list(missing)} and has {_list(extra)} "
            f"too many"
        )
    for name, parameter in own.items():
        if parameter.shape != found[name].shape:
            raise ValueError(
                f"{where}: {name} has shape {tuple(found[name].shape)}, "
                f"but the model wants {tuple(parameter.shape)}"
            )
        if not found[name].is_floating_point():
            raise ValueError(f"{where}: {name} has the type {found[name].dtype}, no weights")


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
    found = _prefixed("generator.", rng.states(device, parallel.group))
    if state.ema is not None:
        found |= _prefixed("average.", parallel.full_tensors(state.ema.weights))
    found |= _prefixed("buffers.", buffers(state.model))
    if state.scores is not None:
        found["scores"] = state.scores
    if state.memory is not None:
        found |= _prefixed("memory.", state.memory.tensors(parallel.group))
    return found


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": value for name, value in tensors.items()}


def _unprefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown or "nothing"
