"""Parallelism of a model over ranks: none, data parallel (DDP), or fully sharded (FSDP2).

The three classes have the same methods, so that the training loop has no branch. Gradients are
the mean over the ranks; a rank therefore multiplies its share of the loss by the number of ranks.
Names of parameters never change.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, TypeVar

from torch import Tensor, nn

from clearformer.core.block import DecoderBlock
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.core.stack import Stack
from clearformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup

Loss = Callable[..., tuple[Tensor, Tensor]]
Model = Transformer | Seq2Seq
Compiled = Callable[[Model], Loss]  # a model to its loss, compiled
M = TypeVar("M", bound=nn.Module)


class Parallelism:
    """No parallelism: one process has the whole model."""

    compile_by_default = True

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.world_size = group.world_size

    def apply(self, model: nn.Module) -> None:
        """Wrap the model, before anything else refers to its parameters."""

    def loss(self, model: Model, compiled: Compiled | None) -> Loss:
        """The model's loss, whose backward pass gives every rank the mean gradient."""
        return compiled(model) if compiled else model.loss

    def gradient_sync(self, last: bool) -> AbstractContextManager[Any]:
        """Context of a micro-batch: gradients are reduced with the last one of a step."""
        return nullcontext()

    def full_tensor(self, tensor: Tensor) -> Tensor:
        """The full tensor; all ranks must call this."""
        return tensor

    def local_tensor(self, tensor: Tensor) -> Tensor:
        """The part of a tensor that is on this rank."""
        return tensor

    def full_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Full tensors, on the main process."""
        return dict(tensors)

    def shard(self, whole: Tensor, like: Tensor) -> Tensor:
        """This rank's shard of a full tensor that is sharded as `like` is."""
        return whole

    def full_model(self, model: M, outline: Callable[[], M]) -> M:
        """An unsharded model for evaluation; `outline` makes one without weights."""
        return model

    def split_sharded(
        self, tensors: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Split into the sharded tensors and the replicated ones."""
        return {}, dict(tensors)


NOT_PARALLEL = Parallelism(SINGLE_PROCESS)


class DataParallel(Parallelism):
    """Every rank has a replica, and gradients are averaged: DistributedDataParallel."""

    def loss(self, model: Model, compiled: Compiled | None) -> Loss:
        self.replica = nn.parallel.DistributedDataParallel(
            _LossModule(model, super().loss(model, compiled))
        )
        return self.replica

    def gradient_sync(self, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else self.replica.no_sync()


class FullySharded(Parallelism):
    """Every rank has a shard of each block, which is gathered only while it is used: FSDP2."""

    compile_by_default = False  # block by block it gains little and starts slowly

    def apply(self, model: nn.Module) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        mesh = init_device_mesh(next(model.parameters()).device.type, (self.world_size,))
        self.model = model
        self.units = [unit for block in _blocks(model) for unit in shard_units(block)]
        for unit in self.units:
            fully_shard(unit, mesh=mesh)
        # Parameters outside the blocks are used at both ends of a pass: kept until the backward.
        fully_shard(model, mesh=mesh, reshard_after_forward=False)
        register_fsdp_forward_method(model, "loss")
        # FSDP2 warns about changing a loss in place, which nothing here does.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")

    def loss(self, model: Model, compiled: Compiled | None) -> Loss:
        if compiled:
            # Ranks exchange weights between the units, which the compiler cannot trace.
            for unit in self.units:
                unit.compile()
        return model.loss

    @contextmanager
    def gradient_sync(self, last: bool) -> Iterator[None]:
        from torch.distributed.fsdp import FSDPModule

        assert isinstance(self.model, FSDPModule)
        self.model.set_requires_gradient_sync(last)
        yield

    def full_tensor(self, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def local_tensor(self, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def full_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        full = {}
        for name, tensor in tensors.items():
            gathered = self.full_tensor(tensor)
            if self.group.is_main:
                full[name] = gathered.cpu()
        return full

    def shard(self, whole: Tensor, like: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(like, DTensor) or whole.shape != like.shape:
            return whole
        # Every rank has read the full tensor and takes its shard: nothing is sent.
        return distribute_tensor(
            whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None
        )

    def full_model(self, model: M, outline: Callable[[], M]) -> M:
        # A copy: an evaluation may call the model a different number of times on each rank, and
        # a sharded model would then deadlock.
        full = outline()
        names = {id(each): name for name, each in full.named_parameters()}
        weights = {
            name: nn.Parameter(self.full_tensor(each.detach()), requires_grad=False)
            for name, each in model.named_parameters()
        }
        for module in full.modules():
            for name, each in module.named_parameters(recurse=False, remove_duplicate=False):
                setattr(module, name, weights[names[id(each)]])
        return full.to(next(model.parameters()).device)

    def split_sharded(
        self, tensors: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        from torch.distributed.tensor import DTensor

        sharded = {name: each for name, each in tensors.items() if isinstance(each, DTensor)}
        return dict(sharded), {name: tensors[name] for name in tensors if name not in sharded}


def parallelism(group: ProcessGroup, distribute: Literal["ddp", "fsdp2"]) -> Parallelism:
    """The parallelism that a config asks for; none in a group of one process."""
    if type(group) is ProcessGroup:
        return Parallelism(group)
    return {"ddp": DataParallel, "fsdp2": FullySharded}[distribute](group)


class _LossModule(nn.Module):
    """A module whose forward pass is a model's loss, since DDP wraps modules."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        return self.loss(*arguments)


def _blocks(model: nn.Module) -> Sequence[nn.Module]:
    return [b for m in model.modules() if isinstance(m, Stack) for b in m.blocks]


def shard_units(block: nn.Module) -> Sequence[Any]:
    """Parts of a block that are gathered together.

    A decoder's cross-attention reads the source before its block runs, so it stays with the
    parameters outside the blocks.
    """
    if isinstance(block, DecoderBlock):
        return [block.attention, block.feed_forward]
    return [block]
