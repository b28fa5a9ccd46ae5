"""Beginning where another run ended: its tokenizer, and its weights as far as they fit.

The body (embedding and blocks) is taken over whole, or the beginning is refused. The head comes
along where it is of the same kind; a new one is drawn, but for BERT's pooled first token, which
a classifier takes over too. A new run writes down what it began from, and does not need it any
more once it has a checkpoint of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import Tensor, nn

from clearformer import limits, safe_files
from clearformer.builder import build
from clearformer.config import (
    ModelConfig,
    Origin,
    RunConfig,
    run_from_json,
)
from clearformer.core.embedding import Embedding
from clearformer.runs import load
from clearformer.runs.checkpoint import Checkpoint
from clearformer.runs.fingerprint import OWN, Builder
from clearformer.text import Tokenizer
from clearformer.text import from_json as tokenizer_from_json

FREE = {"name", "family", "head", "dropout", "length", "cache"}  # what a new run may choose
POSITIONS = "embedding.position.table.weight"
POOLER = "head.sentence.pool.", "head.pool."  # where BERT keeps it, and where a classifier does


@dataclass(frozen=True)
class Beginning:
    """What is to be known of a run before another begins from it."""

    config: RunConfig
    tokenizer: Tokenizer
    origin: Origin


def read(path: Path) -> Beginning:
    """The settings of the run, or of the single checkpoint, in `path`."""
    found = load.best_checkpoint(path)
    load.require_floats(found)
    config = run_from_json(found.json("config.json"))
    tokenizer = tokenizer_from_json(found.json("tokenizer.json"))
    return Beginning(config, tokenizer, Origin(folder=str(path), sha256=identity(found)))


def open_origin(origin: Origin, config: RunConfig, make: Builder = build) -> load.Opened:
    """The model to begin from, if it is still the one that was meant, and one that fits.

    `make` is the new run's builder, and opens a model that a builder of one's own has made.
    """
    path = Path(origin.folder)
    stock = OWN not in load.best_checkpoint(path).manifest
    opened = load.open_run(path, build if stock else make)
    if identity(opened.found) != origin.sha256:
        raise ValueError(
            f"{origin.folder} is not what it was when this run was set up: begin anew from it, "
            f"or put the old one back"
        )
    kind, size = opened.tokenizer.kind, opened.tokenizer.size
    if config.data.tokenizer != kind or config.data.vocabulary not in (None, size):
        raise ValueError(
            f"{origin.folder} comes with its tokenizer, {kind} with {size:,} tokens, but "
            f"{config.data.tokenizer} with {config.data.vocabulary} was asked for: leave that out"
        )
    require_same_body(opened.config.model, config.model, origin.folder)
    return opened


def identity(found: Checkpoint) -> str:
    manifest = found.folder / "manifest.json"
    data = safe_files.read(manifest, limits.MAX_JSON_BYTES, "MAX_JSON_BYTES")
    return hashlib.sha256(data).hexdigest()


def require_same_body(source: ModelConfig, asked: ModelConfig, where: str) -> None:
    """Refuse what would make another function of the same weights."""
    for field in fields(source):
        own, wanted = getattr(source, field.name), getattr(asked, field.name, None)
        if own != wanted and field.name not in FREE:
            raise ValueError(
                f"model.{field.name} is {wanted}, but {where} has {own}: with --from only the "
                f"head, dropout and a shorter length may differ"
            )
    if source.position.max_length(source.length) is not None and asked.length > source.length:
        raise ValueError(
            f"model.length is {asked.length}, but {where} has learned {source.length} positions: "
            f"choose at most that"
        )
    head = asked.head
    behind = "generate" in source.verbs or source.cache is not None
    if behind and head.pool in ("first", "pooler"):
        raise ValueError(
            f"model.head.pool is {head.pool!r}, but the first token of {where} sees no other: "
            f"choose mean or max"
        )


@torch.no_grad()
def take_over(model: nn.Module, config: ModelConfig, opened: load.Opened) -> None:
    """Fill a freshly drawn model with the weights of another; their bodies must be the same."""
    source = opened.config.model
    given = {name: value.detach() for name, value in opened.model.named_parameters()}
    if "classify" in config.verbs:
        given = {name.replace(*POOLER): value for name, value in given.items()}
    same_head = type(source.head) is type(config.head) and not _other_classes(source, config)
    for name, parameter in model.named_parameters():
        value = _fitting(given, name, parameter)
        drawn = name.startswith("head.") and not same_head
        if value is not None and (not drawn or name.startswith(POOLER[1])):
            parameter.copy_(value)
        elif not drawn:
            shape = tuple(given[name].shape) if name in given else "nothing"
            raise ValueError(
                f"{opened.found.folder} does not fit the model: {name} is {shape} there, but "
                f"{tuple(parameter.shape)} is needed"
            )


def _fitting(given: Mapping[str, Tensor], name: str, parameter: nn.Parameter) -> Tensor | None:
    value = given.get(name)
    if value is not None and name == POSITIONS:
        value = value[: len(parameter)]
    return value if value is not None and value.shape == parameter.shape else None


def _other_classes(source: ModelConfig, config: ModelConfig) -> bool:
    """Whether two classifiers tell different things: then the old answers mean nothing."""
    return source.head.names != config.head.names


@torch.no_grad()
def scale_tables(model: nn.Module, size: float) -> None:
    """Bring the tables of the embedding to this standard deviation, all by the same factor.

    A norm follows, so the model says what it said. But Adam moves every number by about the rate,
    whatever its size: tables that grew in pretraining would hardly learn at a rate at which drawn
    ones do.
    """
    embedding = getattr(model, "embedding", None)
    if not isinstance(embedding, Embedding) or isinstance(embedding.norm, nn.Identity):
        raise ValueError(
            f"train.embedding_std is {size:g}, but no norm follows the tables of this model, so "
            f"that it would say something else: leave it out"
        )
    first = torch.zeros(1, dtype=torch.long)  # position 0
    added = embedding.scheme.added(first, embedding.width, embedding.position)
    fixed = added is not None and embedding.position is None
    head = model.get_submodule("head")
    if fixed or any(each is embedding.token.weight for each in head.parameters()):
        why = "positions that do not learn are added to" if fixed else "the head shares"
        raise ValueError(
            f"train.embedding_std is {size:g}, but {why} the table of tokens, so that the model "
            f"would say something else: leave it out"
        )
    factor = size / embedding.token.weight.std()
    for name, part in embedding.named_children():
        if name != "norm":
            for parameter in part.parameters():
                parameter.mul_(factor)


def freeze_body(model: nn.Module) -> None:
    """Let the head alone learn; a matrix that it shares with the body stays as it is."""
    for name, part in model.named_children():
        if name != "head":
            part.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            "train.freeze is 'body', but the head has no weights of its own, so nothing would "
            "learn: leave it out"
        )
