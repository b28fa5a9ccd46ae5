"""How much memory a training step takes, and how much work it is, without doing it.

One step of the very code that trains runs on tensors that have a shape and no memory (torch's
fake tensors), while a ledger adds up what is allocated, what is freed, and the products on the
way. So a new architecture, kernel or optimizer is counted right from its first day, and a model
of any size is counted in seconds.
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
from clearformer.config import RunConfig
from clearformer.core.stack import Stack
from clearformer.kernels.guides import guide
from clearformer.kernels.tiles import tiles
from clearformer.tasks.registry import task_of
from clearformer.training import optim, precision, recompute
from clearformer.training.label_smoothing import set_smoothing
from clearformer.training.recompute import Recompute

CPU = torch.device("cpu")
Sides = tuple[int, int]  # tokens of a source and of a target
ASSUMED: Sides = (32, 32)  # where nobody knows


@dataclass(frozen=True)
class Footprint:
    """Bytes of a training step by part, and its floating-point operations."""

    parameters: int
    weights: int
    gradients: int
    optimizer: int
    average: int  # a second copy of the weights, if there is one
    kept: int  # what the forward pass leaves for the backward pass
    step: int  # the most at any moment of a step, beyond weights, optimizer and average
    evaluation: int  # likewise of an evaluation
    operations: int  # of one micro-batch, forward and backward

    @property
    def activations(self) -> int:
        """What a micro-batch takes beyond what is always there."""
        return max(0, self.step - self.gradients)

    @property
    def total(self) -> int:
        most = max(self.step, self.evaluation)
        return self.weights + self.optimizer + self.average + most


def footprint(
    config: RunConfig, rows: int, what: Recompute, accumulated: bool, sides: Sides = ASSUMED
) -> Footprint:
    """Count a step with `rows` sequences, or pairs with these sides, at a time; accumulated =
    gradients are there before."""
    model = config.model
    # Layers are alike after so many of them: one turn of patterns, one of what is recomputed.
    turn = lcm(len(model.patterns), what if isinstance(what, int) else 1)
    few, many = 2 * turn, 3 * turn
    if model.kernel != "blockwise" or model.layers < 2 * many:
        return _counted(config, rows, what, accumulated, sides)
    # Tiles are thousands of small operations in each layer, so that two depths stand for all.
    depths = (replace(config, model=replace(model, layers=n)) for n in (few, many))
    shorter, longer = (astuple(_counted(each, rows, what, accumulated, sides)) for each in depths)
    more = (model.layers - few) / turn
    return Footprint(
        *(round(a + more * (b - a)) for a, b in zip(shorter, longer, strict=True)),
    )


def _counted(
    config: RunConfig, rows: int, what: Recompute, accumulated: bool, sides: Sides
) -> Footprint:
    from torch._subclasses.fake_tensor import FakeTensorMode  # takes a second to load

    _find_tiles(config)
    hidden = config.data.masking.rate if config.data.masking is not None else 1.0
    with FakeTensorMode(allow_non_fake_inputs=True), Ledger(hidden) as ledger:
        model = _model(config)
        weights = ledger.now
        recompute.apply(model, what)
        set_smoothing(model, config.train.label_smoothing)
        learning = [p for p in model.parameters() if p.requires_grad]
        optimizers = optim.make_optimizers(model, config.train)
        for parameter in learning:
            parameter.grad = torch.zeros_like(parameter)
        gradients = ledger.now - weights
        for optimizer in optimizers:
            optimizer.step()
        always = ledger.now - gradients  # weights and optimizer
        half = precision.resolve(config.train.precision, CPU)
        loss: Any = precision.autocast_loss(model.loss, half, CPU)
        if not accumulated:
            for optimizer in optimizers:
                optimizer.zero_grad()
        batch, caches = task_of(config.model).example(config, rows, sides)
        before, ledger.highest, ledger.operations = ledger.now, ledger.now, 0
        sums, _ = loss(batch, caches) if caches else loss(batch)
        kept = ledger.now - before
        sums.sum().backward()
        operations = ledger.operations
        del sums, batch, caches
        nn.utils.clip_grad_norm_(learning, config.train.gradient_clip or 1.0)
        for optimizer in optimizers:
            optimizer.step()
        highest = ledger.highest
        evaluation = _evaluation(config, model, ledger)
    return Footprint(
        sum(p.numel() for p in model.parameters()),
        weights,
        gradients,
        always - weights,
        weights if config.train.ema_decay else 0,
        kept,
        highest - always,
        evaluation,
        operations,
    )


class Ledger(TorchDispatchMode):
    """Adds up the memory of every tensor that an operation makes, until it is freed."""

    def __init__(self, share: float = 1.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.share = share  # of places that a table of True and False picks
        self.alive: dict[int, Any] = {}
        self.now = 0
        self.highest = 0
        self.operations = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = self._picked(function, args)
        if found is None:
            found = function(*args, **(kwargs or {}))
        for each in tree_iter(found):
            if isinstance(each, Tensor):
                self.note(each.untyped_storage())
        count = COUNTS.get(function.overloadpacket._qualified_op_name)
        if count is not None:
            self.operations += count(args, found)
        return found

    def note(self, storage: torch.UntypedStorage) -> None:
        """Count this memory from now on, if it is not counted yet."""
        key, size = storage._cdata, storage.nbytes()
        if key in self.alive:
            return

        def gone(_: object) -> None:
            self.now -= size
            del self.alive[key]

        self.alive[key] = weakref.ref(storage, gone)
        self.now += size
        self.highest = max(self.highest, self.now)

    def _picked(self, function: Any, args: Any) -> Any:
        """x[places]: how many places are True only data can tell, so a share of them is."""
        name = function.overloadpacket._qualified_op_name
        picks = name in PICKS and args[1][0] is not None and args[1][0].dtype == torch.bool
        if not picks:
            return None
        source, places = args[0], args[1][0]
        if name != "aten::index":
            return source  # what is written into it does not change its size
        count = max(1, round(self.share * places.numel()))
        return source.new_zeros(count, *source.shape[places.dim() :])


PICKS = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}


def _matrices(args: Any, found: Tensor) -> int:
    """2 m k n: args end on the two factors."""
    return 2 * args[-2].shape[-1] * found.numel()


def _added(args: Any, found: Tensor) -> int:
    return 2 * args[1].shape[-1] * found.numel()


def _attention(args: Any, found: Any) -> int:
    q, k, v = args[:3]
    return 2 * prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def _attention_backward(args: Any, found: Any) -> int:
    return 5 * _attention(args[1:], found) // 2  # five products for two


COUNTS: dict[str, Callable[[Any, Any], int]] = {
    "aten::mm": _matrices,
    "aten::bmm": _matrices,
    "aten::addmm": _added,
    "aten::addmm_": _added,
    "aten::baddbmm": _added,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
}


def _model(config: RunConfig) -> Any:
    model = builder.assemble(config.model).train()
    if config.train.freeze is not None:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("head."))
    return model


def _evaluation(config: RunConfig, model: Any, ledger: Ledger) -> int:
    """The most that an evaluation takes, beyond weights and optimizer; gradients are there."""
    task = task_of(config.model)
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    if task.evaluation_rows is None:
        return gradients  # no more than a step
    whole = task.rows(config, ASSUMED)
    rows = min(task.evaluation_rows, -(-whole // config.train.accumulation_steps))
    rows = max(1, min(rows, 2**26 // (config.model.length * config.model.vocabulary)))
    model.eval()
    batch, caches = task.example(config, rows, ASSUMED)
    before, ledger.highest = ledger.now, ledger.now
    with torch.no_grad():
        model.loss(batch, caches) if caches else model.loss(batch)
    copied = sum(p.nbytes for p in model.parameters()) if config.train.ema_decay else 0
    return ledger.highest - before + gradients + copied


def _find_tiles(config: RunConfig) -> None:
    """Tiles of sparse patterns, found for real before: they are numbers, not shapes."""
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
