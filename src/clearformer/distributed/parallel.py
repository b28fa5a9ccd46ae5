"""How a model is spread over the ranks: not at all, copied to each, or cut in parts.

The three have the same methods; the loop that trains does not know which it has. Gradients
come out as the mean over the ranks, so a rank multiplies its share of the loss by the number
of ranks; names of parameters never change.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, TypeVar

from torch import Tensor, nn

from clearformer.core.block import DecoderBlock
from clearformer.core.stack import Stack
from clearformer.distributed.process_group import ALONE, Alone

Loss = Callable[..., tuple[Tensor, Tensor]]
Compiled = Callable[[nn.Module], Loss]  # a model to its loss, compiled
Model = TypeVar("Model", bound=nn.Module)


class Single:
    """One process has the whole model."""

    compiles = True  # if nobody says whether to

    def __init__(self, ranks: Alone) -> None:
        self.ranks = ranks
        self.world = ranks.world

    def apply(self, model: nn.Module) -> None:
        """Spread the model, before anything holds its parameters."""

    def loss(self, model: nn.Module, compiled: Compiled | None) -> Loss:
        """The model's loss, whose backward pass gives every rank the mean gradient."""
        own: Loss = model.loss  # type: ignore[assignment]
        return compiled(model) if compiled else own

    def exchanging(self, last: bool) -> AbstractContextManager[Any]:
        """Around a micro-batch: gradients are exchanged with the last one of a step alone."""
        return nullcontext()

    def whole(self, tensor: Tensor) -> Tensor:
        """All of a tensor of which this rank may have a part; every rank must ask."""
        return tensor

    def own(self, tensor: Tensor) -> Tensor:
        """What this rank has of a tensor."""
        return tensor

    def collect(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whole tensors for the leader to write."""
        return dict(tensors)

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        """What this rank keeps of a whole tensor, if it keeps it as it keeps `like`."""
        return whole

    def gathered(self, model: Model, outline: Callable[[], Model]) -> Model:
        """The model whole and plain, to be looked at; `outline` is one without weights."""
        return model

    def in_parts(
        self, tensors: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Those of which each rank has a part, and those that all have alike."""
        return {}, dict(tensors)


SINGLE = Single(ALONE)


class Replicated(Single):
    """Every rank has a copy, and gradients are averaged: DistributedDataParallel."""

    def loss(self, model: nn.Module, compiled: Compiled | None) -> Loss:
        self.copies = nn.parallel.DistributedDataParallel(
            _Losses(model, super().loss(model, compiled))
        )
        return self.copies

    def exchanging(self, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else self.copies.no_sync()


class Sharded(Single):
    """Every rank has a part of each block, and has a block whole only to use it: FSDP2."""

    compiles = False  # block by block it gains little, and takes long to begin

    def apply(self, model: nn.Module) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        mesh = init_device_mesh(next(model.parameters()).device.type, (self.world,))
        self.model = model
        self.pieces = [piece for block in _blocks(model) for piece in pieces(block)]
        for piece in self.pieces:
            fully_shard(piece, mesh=mesh)
        # What is outside the blocks is used at both ends of a pass: it stays until the backward.
        fully_shard(model, mesh=mesh, reshard_after_forward=False)
        register_fsdp_forward_method(model, "loss")
        # It warns of changing a loss in place, which nobody does.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")

    def loss(self, model: nn.Module, compiled: Compiled | None) -> Loss:
        if compiled:
            # Between the pieces ranks exchange weights, which no compiler can look into.
            for piece in self.pieces:
                piece.compile()
        return model.loss  # type: ignore[return-value]

    @contextmanager
    def exchanging(self, last: bool) -> Iterator[None]:
        self.model.set_requires_gradient_sync(last)  # type: ignore[operator]
        yield

    def whole(self, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def own(self, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def collect(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for name, tensor in tensors.items():
            whole = self.whole(tensor)
            if self.ranks.leads:
                found[name] = whole.cpu()
        return found

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(like, DTensor) or whole.shape != like.shape:
            return whole
        # Every rank has read all of it and takes its part: nothing is sent.
        return distribute_tensor(
            whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None
        )

    def gathered(self, model: Model, outline: Callable[[], Model]) -> Model:
        # Another model and not this one for a while: whoever looks at a model uses it in ways of
        # his own, and a rank that runs a sharded one more often than the others waits for ever.
        whole = outline()
        own = {id(each): name for name, each in whole.named_parameters()}
        weights = {
            name: nn.Parameter(self.whole(each.detach()), requires_grad=False)
            for name, each in model.named_parameters()
        }
        for module in whole.modules():
            for name, each in module.named_parameters(recurse=False, remove_duplicate=False):
                setattr(module, name, weights[own[id(each)]])
        return whole.to(next(model.parameters()).device)

    def in_parts(
        self, tensors: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        from torch.distributed.tensor import DTensor

        mine = {name for name, each in tensors.items() if isinstance(each, DTensor)}
        return (
            {name: each for name, each in tensors.items() if name in mine},
            {name: each for name, each in tensors.items() if name not in mine},
        )


def spread(ranks: Alone, distribute: Literal["ddp", "fsdp2"]) -> Single:
    """The way that the config asks for; alone there is only one."""
    if type(ranks) is Alone:
        return Single(ranks)
    return {"ddp": Replicated, "fsdp2": Sharded}[distribute](ranks)


class _Losses(nn.Module):
    """A module whose forward pass is a model's loss: what a wrapper can wrap."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        return self.loss(*arguments)


def _blocks(model: nn.Module) -> Sequence[nn.Module]:
    return [b for m in model.modules() if isinstance(m, Stack) for b in m.blocks]


def pieces(block: nn.Module) -> Sequence[Any]:
    """What of a block is gathered together. A decoder's cross-attention is used before its
    block is, to read the source, so it stays with what is outside the blocks."""
    if isinstance(block, DecoderBlock):
        return [block.attention, block.feed_forward]
    return [block]
