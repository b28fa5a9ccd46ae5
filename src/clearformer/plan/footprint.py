"""Memory and floating-point operations of a training step, counted without running it.

The training code itself runs one step on torch's fake tensors, which have a shape but no memory,
while `MemoryCounter` adds up allocations and operations. A new architecture, kernel or optimizer
therefore needs no formula here, and a model of any size is counted in seconds.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from math import lcm, prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from clearformer import builder
from clearformer.adapters.attach import attach
from clearformer.config import RunConfig
from clearformer.core.stack import Stack
from clearformer.kernels.guides import guide
from clearformer.kernels.tiles import tiles
from clearformer.tasks.registry import task_of_run
from clearformer.tasks.task import PairLengths
from clearformer.training import optim, precision, recompute
from clearformer.training.label_smoothing import set_smoothing
from clearformer.training.recompute import Recompute

CPU = torch.device("cpu")
ASSUMED_LENGTHS: PairLengths = (32, 32)  # if the data is not known


@dataclass(frozen=True)
class Footprint:
    """Bytes of a training step by part, and its floating-point operations."""

    parameters: int
    weights: int
    gradients: int
    optimizer: int
    average: int  # the EMA of the weights, if there is one
    kept: int  # saved by the forward pass for the backward pass
    step: int  # peak during a step, besides weights, optimizer and average
    evaluation: int  # peak during an evaluation, likewise
    operations: int  # of one micro-batch, forward and backward

    @property
    def activations(self) -> int:
        """Peak memory of a micro-batch besides weights, gradients and optimizer states."""
        return max(0, self.step - self.gradients)

    @property
    def total(self) -> int:
        peak = max(self.step, self.evaluation)
        return self.weights + self.optimizer + self.average + peak


def footprint(
    config: RunConfig,
    rows: int,
    recomputed: Recompute,
    accumulated: bool,
    pair_lengths: PairLengths = ASSUMED_LENGTHS,
) -> Footprint:
    """Count a step with micro-batches of `rows` sequences, or of pairs with these lengths.

    With `accumulated`, gradients of earlier micro-batches are in memory already.
    """
    model = config.model
    # Layers repeat with this period: a cycle of patterns, and of the blocks that are recomputed.
    period = lcm(len(model.patterns), recomputed if isinstance(recomputed, int) else 1)
    few, many = 2 * period, 3 * period
    if model.kernel != "blockwise" or model.layers < 2 * many:
        return _count(config, rows, recomputed, accumulated, pair_lengths)
    # Tiles are thousands of small operations per layer: count two depths and extrapolate.
    depths = (replace(config, model=replace(model, layers=n)) for n in (few, many))
    shallow, deep = (
        astuple(_count(each, rows, recomputed, accumulated, pair_lengths)) for each in depths
    )
    periods = (model.layers - few) / period
    return Footprint(*(round(a + periods * (b - a)) for a, b in zip(shallow, deep, strict=True)))


def _count(
    config: RunConfig,
    rows: int,
    recomputed: Recompute,
    accumulated: bool,
    pair_lengths: PairLengths,
) -> Footprint:
    from torch._subclasses.fake_tensor import FakeTensorMode  # takes a second to load

    _compute_tiles(config)
    hidden = config.data.masking.rate if config.data.masking is not None else 1.0
    with FakeTensorMode(allow_non_fake_inputs=True), MemoryCounter(hidden) as counter:
        model = _model(config)
        weights = counter.now
        recompute.apply(model, recomputed)
        set_smoothing(model, config.train.label_smoothing)
        learning = [p for p in model.parameters() if p.requires_grad]
        optimizers = optim.make_optimizers(model, config.train)
        for parameter in learning:
            parameter.grad = torch.zeros_like(parameter)
        gradients = counter.now - weights
        for optimizer in optimizers:
            optimizer.step()
        always = counter.now - gradients  # weights and optimizer
        half = precision.resolve(config.train.precision, CPU)
        loss: Any = precision.autocast_loss(model.loss, half, CPU)
        if not accumulated:
            for optimizer in optimizers:
                optimizer.zero_grad()
        batch, caches = task_of_run(config).example(config, rows, pair_lengths)
        before, counter.highest, counter.operations = counter.now, counter.now, 0
        sums, _ = loss(batch, caches) if caches else loss(batch)
        kept = counter.now - before
        sums.sum().backward()
        operations = counter.operations
        del sums, batch, caches
        nn.utils.clip_grad_norm_(learning, config.train.gradient_clip or 1.0)
        for optimizer in optimizers:
            optimizer.step()
        highest = counter.highest
        evaluation = _evaluation(config, model, counter)
    return Footprint(
        sum(p.numel() for p in model.parameters()),
        weights,
        gradients,
        always - weights,
        sum(p.nbytes for p in learning) if config.train.ema_decay else 0,
        kept,
        highest - always,
        evaluation,
        operations,
    )


class MemoryCounter(TorchDispatchMode):
    """Adds up the memory of every tensor from its allocation until it is freed."""

    def __init__(self, share: float = 1.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.share = share  # of True values in a boolean index, which has no values here
        self.alive: dict[int, Any] = {}
        self.now = 0
        self.highest = 0
        self.operations = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = self._boolean_index(function, args)
        if result is None:
            result = function(*args, **(kwargs or {}))
        for output in tree_iter(result):
            if isinstance(output, Tensor):
                self.note(output.untyped_storage())
        count = FLOPS.get(function.overloadpacket._qualified_op_name)
        if count is not None:
            self.operations += count(args, result)
        return result

    def note(self, storage: torch.UntypedStorage) -> None:
        """Count a storage until it is freed, if it is not counted yet."""
        key, size = storage._cdata, storage.nbytes()
        if key in self.alive:
            return

        def gone(_: object) -> None:
            self.now -= size
            del self.alive[key]

        self.alive[key] = weakref.ref(storage, gone)
        self.now += size
        self.highest = max(self.highest, self.now)

    def _boolean_index(self, function: Any, args: Any) -> Any:
        """The result of x[mask] with `share` of the mask True, since a fake mask has no values."""
        name = function.overloadpacket._qualified_op_name
        if name not in INDEXING or args[1][0] is None or args[1][0].dtype != torch.bool:
            return None
        source, mask = args[0], args[1][0]
        if name != "aten::index":
            return source  # writing into it does not change its size
        count = max(1, round(self.share * mask.numel()))
        return source.new_zeros(count, *source.shape[mask.dim() :])


INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}


def _matmul_flops(args: Any, result: Tensor) -> int:
    """2 m k n; the last two arguments are the factors."""
    return 2 * args[-2].shape[-1] * result.numel()


def _addmm_flops(args: Any, result: Tensor) -> int:
    return 2 * args[1].shape[-1] * result.numel()


def _attention_flops(args: Any, result: Any) -> int:
    q, k, v = args[:3]
    return 2 * prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def _attention_backward_flops(args: Any, result: Any) -> int:
    return 5 * _attention_flops(args[1:], result) // 2  # five products instead of two


FLOPS: dict[str, Callable[[Any, Any], int]] = {
    "aten::mm": _matmul_flops,
    "aten::bmm": _matmul_flops,
    "aten::addmm": _addmm_flops,
    "aten::addmm_": _addmm_flops,
    "aten::baddbmm": _addmm_flops,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention_flops,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward_flops,
}


def _model(config: RunConfig) -> Any:
    model = builder.assemble(config.model).train()
    if config.train.freeze is not None:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("head."))
    if config.train.adapter is not None:
        attach(model, config.train.adapter)
    return model


def _evaluation(config: RunConfig, model: Any, counter: MemoryCounter) -> int:
    """Peak memory of an evaluation besides weights and optimizer, with gradients allocated."""
    task = task_of_run(config)
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    if task.evaluation_rows is None:
        return gradients  # less than a step
    rows_per_batch = task.rows(config, ASSUMED_LENGTHS)
    rows = min(task.evaluation_rows, -(-rows_per_batch // config.train.accumulation_steps))
    rows = max(1, min(rows, 2**26 // (config.model.length * config.model.vocabulary)))
    model.eval()
    batch, caches = task.example(config, rows, ASSUMED_LENGTHS)
    before, counter.highest = counter.now, counter.now
    with torch.no_grad():
        model.loss(batch, caches) if caches else model.loss(batch)
    learning = (p for p in model.parameters() if p.requires_grad)
    copied = sum(p.nbytes for p in learning) if config.train.ema_decay else 0
    return counter.highest - before + gradients + copied


def _compute_tiles(config: RunConfig) -> None:
    """Compute and cache the tiles of sparse patterns, which depend on values, not on shapes."""
    if config.model.kernel != "blockwise":
        return
    length = config.model.length
    sketch = builder.outline(replace(config.model, layers=len(config.model.patterns)))
    for module in sketch.modules():
        if isinstance(module, Stack):
            for pattern in module.patterns:
                for head in dict.fromkeys(pattern.by_head(config.model.heads)):
                    if guide(head).max_keys(length) < length:
                        tiles(head, 0, length, length, CPU)
