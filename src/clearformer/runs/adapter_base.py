"""Adapters in runs: a checkpoint holds the adapter alone, and names the model that it belongs to.

The model is named by its folder and by the hash of its checkpoint's manifest, which holds the
hashes of all its files. So an adapter is never put into other weights than it was trained for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from clearformer.adapters.attach import attach, merge
from clearformer.adapters.frozen import Held
from clearformer.builder import build, outline
from clearformer.config import Adapter, Origin, RunConfig, run_from_json
from clearformer.runs import checkpoint, finetune, load, state
from clearformer.runs.checkpoint import Checkpoint
from clearformer.runs.fingerprint import BUILDER, Builder
from clearformer.runs.load import OpenedAny


def open_base(
    config: RunConfig, beside: Path, make: Builder = build, moved: Path | None = None
) -> OpenedAny:
    """Open the model of an adapter, in float32; ValueError if it is gone or another one.

    `beside` is the folder of the adapter's run or checkpoint, `moved` where the model is now.
    """
    origin = config.origin
    if origin is None:
        raise ValueError(f"{beside} is an adapter, but its config.json does not name its model")
    folder = find_base(origin, beside, moved)
    custom = BUILDER in checkpoint.verify(folder).manifest
    opened = load.open_any(folder, make if custom else build, dequantize=True)
    finetune.require_same_body(opened.config.model, config.model, str(folder))
    return opened


def find_base(origin: Origin, beside: Path, moved: Path | None = None) -> Path:
    """The checkpoint that an adapter was trained for, by its hash."""
    places = [Path(origin.folder), _sibling(Path(origin.folder), beside)]
    if moved is not None:
        places = [moved]
    for folder in (each for place in places for each in _checkpoints(place)):
        try:
            if finetune.manifest_hash(folder) == origin.sha256:
                return folder
        except (OSError, ValueError):
            continue  # the next one may be readable
    there = [place for place in places if place.exists()]
    if not there:
        raise ValueError(
            f"{beside} is an adapter for the model in {places[0]}, which is not there: put it back "
            f"there, or beside the adapter's run"
        )
    raise ValueError(
        f"{beside} is an adapter for another model than {there[0]} holds (sha256 "
        f"{origin.sha256[:12]} of its manifest): restore the checkpoint that it was trained from"
    )


def _sibling(folder: Path, beside: Path) -> Path:
    """The folder of this name beside an adapter's run."""
    inside = 3 if folder.parent.name == "checkpoints" else 1
    run = beside.absolute()
    run = run.parents[1] if run.parent.name == "checkpoints" else run
    return run.parent.joinpath(*folder.parts[-inside:])


def _checkpoints(place: Path) -> Iterator[Path]:
    """A checkpoint itself, or those of a run, newest first."""
    if os.path.lexists(place / "manifest.json"):
        yield place
    elif (place / "checkpoints").is_dir():
        yield from (path for _, path in reversed(checkpoint.numbered(place / "checkpoints")))


def resolved(adapter: Adapter, base: Checkpoint) -> Adapter:
    """The adapter with how its matrices are held: as they are stored, unless that was chosen."""
    stored: Held = "int8" if load.has_int8(base) else "float32"
    return replace(adapter, base=adapter.base or stored)


def load_adapter(
    model: nn.Module,
    saved: Checkpoint,
    config: RunConfig,
    tensors: Mapping[str, Tensor],
    make: Builder = build,
    moved: Path | None = None,
) -> None:
    """Give a model the weights of an adapter's base, with the adapter merged into them."""
    base = open_base(config, saved.folder, make, moved)
    put_into(model, config, tensors, base, str(saved.folder))


def open_beside(path: Path, base: Checkpoint) -> nn.Module | None:
    """A model with the adapter of a run, not merged; None if it needs matrices of its own.

    It does if its head is new, or its matrices were held in another form than `base` has.
    ValueError if it was trained for another model than `base`.
    """
    saved = load.best_checkpoint(path)
    if not load.has_adapter(saved):
        raise ValueError(f"{path} is not an adapter: serve it as a model of its own")
    config = run_from_json(saved.json("config.json"))
    opened = open_base(config, saved.folder)
    if finetune.identity(opened.checkpoint) != finetune.identity(base):
        raise ValueError(
            f"{path} is an adapter for {opened.checkpoint.folder}, not for {base.folder}: serve it "
            f"with its own base"
        )
    assert config.train.adapter is not None
    adapter = resolved(config.train.adapter, base)
    if adapter.base != "float32" or not finetune.same_weights(opened.config.model, config.model):
        return None
    model = outline(config.model)
    tensors = load.saved_weights(saved, config, state.ADAPTER)
    attached(model, config, tensors, opened, str(saved.folder))
    return model.eval()


def put_into(
    model: nn.Module,
    config: RunConfig,
    tensors: Mapping[str, Tensor],
    base: OpenedAny,
    where: str,
) -> None:
    """Give a model the weights of `base`, with the tensors of an adapter merged into them."""
    learned = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    attached(model, config, tensors, base, where)
    for name, parameter in merge(model).named_parameters():
        parameter.requires_grad_(name in learned)


def attached(
    model: nn.Module,
    config: RunConfig,
    tensors: Mapping[str, Tensor],
    base: OpenedAny,
    where: str,
) -> None:
    """Give a model the weights of `base`, and the tensors of an adapter beside them."""
    adapter = config.train.adapter
    if adapter is None:
        raise ValueError(f"{where} holds an adapter, but its config.json has none")
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(
                f"{where}: {name:.100} of the adapter has NaN or infinity: get it again from its "
                f"source"
            )
    weights = finetune.pretrained_weights(model, config.model, base)
    # The head that was trained too: a new one, or one that PEFT was told to save.
    head = {n: t for n, t in tensors.items() if n.startswith(finetune.CLASS_PREFIXES)}
    learning = {n for n, _ in model.named_parameters() if n in head or n not in weights}
    state.adopt_weights(model, {**weights, **head}, where)
    attach(model, resolved(adapter, base.checkpoint), learning=learning)
    state.load_weights(state.ADAPTER.keeping(learning).of(model), tensors, where)
